#include <ampscope/sim/train/data/tokens.h>

#include <ampscope/sim/base/fingerprint.h>
#include <ampscope/sim/train/data/arrays.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

namespace amp {

Dataset windows_of(const std::string& name, const std::string& unit, std::vector<float> numbers,
                   std::int64_t vocabulary, const std::string& fingerprint, std::int64_t context,
                   const std::filesystem::path& where) {
    const auto length = static_cast<std::int64_t>(numbers.size());
    if (length < 20 * (context + 1))
        throw FileError(where, "holds " + std::to_string(length) + " " + unit + "; a context of " +
                                   std::to_string(context) + " needs at least " + std::to_string(20 * (context + 1)));
    const auto tokens = std::make_shared<const std::vector<float>>(std::move(numbers));

    // The first window of validation begins after the last window of training has ended.
    const std::int64_t held_out = length / 10, gap = context;
    Dataset d{.name = name,
              .fingerprint = fingerprint,
              .input = {context},
              .target = {context},
              .vocabulary = vocabulary,
              .classes = vocabulary,
              .training = length - held_out - context,
              .validation = (held_out - gap - 1) / context,
              .read = {}};
    d.read = [tokens, context, training = d.training, first = length - held_out + gap](std::int64_t i, float* input,
                                                                                       float* target) {
        const std::int64_t at = i < training ? i : first + (i - training) * context;
        std::copy_n(tokens->begin() + at, context, input);
        std::copy_n(tokens->begin() + at + 1, context, target);
    };
    return d;
}

Dataset tokens_data(const std::filesystem::path& path, std::int64_t context) {
    constexpr float most = 1 << 24; // FP32 holds all numbers up to there
    const std::unique_ptr<TensorFile> file = open_tensor_file(path);
    const auto& all = file->tensors();
    const auto found = all.size() == 1 ? all.begin() : std::ranges::find(all, "tokens", &TensorEntry::name);
    if (found == all.end())
        throw FileError(path, "no array \"tokens\": expected one, as numpy.savez(path, tokens=...) writes it");
    std::vector<float> tokens = read_floats(*file, static_cast<std::size_t>(found - all.begin()));
    float largest = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (!(tokens[i] >= 0 && tokens[i] < most && tokens[i] == std::floor(tokens[i])))
            throw FileError(path, found->name + ": element " + std::to_string(i) + " is no token number");
        largest = std::max(largest, tokens[i]);
    }
    Fingerprint fingerprint;
    fingerprint.add(std::as_bytes(std::span(tokens)));
    return windows_of(path.filename(), "tokens", std::move(tokens), static_cast<std::int64_t>(largest) + 1,
                      fingerprint.text(), context, path);
}

} // namespace amp
