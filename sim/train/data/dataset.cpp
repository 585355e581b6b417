#include <ampscope/sim/train/data/dataset.h>

#include <ampscope/sim/base/fingerprint.h>
#include <ampscope/sim/base/noise.h>

#include <ampscope/formats/random.h>
#include <ampscope/sim/io/tensor_file.h>
#include <ampscope/sim/io/text_file.h>
#include <ampscope/sim/program/model.h>
#include <ampscope/sim/train/data/arrays.h>
#include <ampscope/sim/train/data/tokens.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

namespace amp {

namespace {

// Streams of random words; those of the ops count up from 1.
enum Stream : std::uint32_t {
    regression_weights = 0xda7a0000,
    regression_inputs,
    regression_noise,
    shuffling,
    splitting
};

constexpr std::string_view alice[] = {
#include <ampscope/sim/train/data/alice.inc>
};

constexpr std::string_view digits[] = {
#include <ampscope/sim/train/data/digits.inc>
};

/// The numbers 0 ... count - 1 in an order that depends on (seed, stream, step).
std::vector<std::int64_t> permutation(std::uint64_t seed, std::uint32_t stream, std::uint32_t step,
                                      std::int64_t count) {
    std::vector<std::pair<std::uint32_t, std::int64_t>> keyed(static_cast<std::size_t>(count));
    const RandomKey key{.seed = seed, .stream = stream, .step = step};
    for (std::int64_t i = 0; i < count; ++i)
        keyed[static_cast<std::size_t>(i)] = {key.word(static_cast<std::uint64_t>(i)), i};
    std::ranges::sort(keyed);
    std::vector<std::int64_t> order;
    for (const auto& [word, i] : keyed) order.push_back(i);
    return order;
}

/// Shuffles the examples once, so that training and validation examples are alike.
void split(Dataset& data, std::int64_t count, std::function<void(std::int64_t, float*, float*)> read) {
    data.validation = count / 5;
    data.training = count - data.validation;
    data.read = [order = permutation(0, splitting, 0, count), read = std::move(read)](std::int64_t i, float* input,
                                                                                      float* target) {
        read(order[static_cast<std::size_t>(i)], input, target);
    };
}

/// A shape as NumPy writes it: "(100, 0)".
std::string shape_text(const std::vector<std::uint64_t>& shape) {
    std::string text = "(";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + (shape.size() == 1 ? ",)" : ")");
}

std::size_t find_array(const TensorFile& file, std::string_view name) {
    const auto found = std::ranges::find(file.tensors(), name, &TensorEntry::name);
    if (found == file.tensors().end())
        throw FileError(file.path(), std::string("no array \"") + std::string(name) +
                                         "\": expected x and y, as numpy.savez(path, x=..., y=...) writes them");
    if (found->storage_order)
        throw FileError(file.path(), std::string(name) + ": is in Fortran order; save numpy.ascontiguousarray of it");
    return static_cast<std::size_t>(found - file.tensors().begin());
}

/// The data of text_data.
Dataset windows_of_bytes(const std::string& name, const std::string& bytes, std::int64_t context,
                         const std::filesystem::path& where) {
    std::array<int, 256> number{};
    for (const char c : bytes) number[static_cast<unsigned char>(c)] = 1;
    int vocabulary = 0;
    for (int& n : number) n = n != 0 ? vocabulary++ : -1;
    std::vector<float> tokens;
    for (const char c : bytes) tokens.push_back(static_cast<float>(number[static_cast<unsigned char>(c)]));
    Fingerprint fingerprint;
    fingerprint.add(std::as_bytes(std::span(bytes)));
    return windows_of(name, "bytes", std::move(tokens), vocabulary, fingerprint.text(), context, where);
}

} // namespace

std::int64_t Shuffle::operator[](std::int64_t i) {
    if (const std::int64_t epoch = i / count_; epoch != epoch_) {
        order_ = permutation(seed_, shuffling, static_cast<std::uint32_t>(epoch), count_);
        epoch_ = epoch;
    }
    return order_[static_cast<std::size_t>(i % count_)];
}

Dataset regression_data(std::uint64_t seed) {
    Dataset d{.name = "regression", .input = {10}, .target = {1}, .training = 4096, .validation = 512, .read = {}};
    d.read = [seed](std::int64_t i, float* input, float* target) {
        double y = 0.1 * normal(seed, regression_noise, static_cast<std::uint64_t>(i));
        for (std::uint64_t j = 0; j < 10; ++j) {
            input[j] = static_cast<float>(normal(seed, regression_inputs, static_cast<std::uint64_t>(i) * 10 + j));
            y += normal(seed, regression_weights, j) * input[j];
        }
        *target = static_cast<float>(y);
    };
    return d;
}

Dataset digits_data() {
    constexpr std::int64_t count = 1797;
    static_assert(std::size(digits) == count);
    Dataset d{.name = "digits", .input = {8, 8, 1}, .target = {}, .classes = 10, .read = {}};
    split(d, count, [](std::int64_t i, float* input, float* target) {
        const std::string_view text = digits[i];
        for (std::size_t j = 0; j < 64; ++j) input[j] = static_cast<float>(text[j] - 'A') / 16;
        *target = static_cast<float>(text[64] - '0');
    });
    return d;
}

Dataset modular_data(std::int64_t p) {
    if (p < 2 || p > 4096) throw std::invalid_argument("[modular] expected a modulus of 2 ... 4096");
    Dataset d{.name = "modular", .input = {4}, .target = {4}, .vocabulary = p + 2, .classes = p + 2, .read = {}};
    split(d, p * p, [p](std::int64_t i, float* input, float* target) {
        const std::int64_t a = i / p, b = i % p, tokens[] = {a, p, b, p + 1};
        std::copy_n(tokens, 4, input);
        std::fill_n(target, 3, -1.0F);
        target[3] = static_cast<float>((a + b) % p);
    });
    return d;
}

Dataset own_data(const std::string& name, std::uint64_t seed, std::int64_t modulus) {
    if (model(name).reads_tokens) return modular_data(modulus);
    if (name == "linear") return regression_data(seed);
    return digits_data();
}

Dataset text_data(const std::filesystem::path& path, std::int64_t context) {
    constexpr std::uint64_t longest_text = 256 << 20; // the tokens take four times as much memory
    return windows_of_bytes(path.filename(), TextFile(path, Pipe::accepted).rest(longest_text), context, path);
}

Dataset alice_data(std::int64_t context) {
    std::string text;
    for (const std::string_view part : alice) text += part;
    return windows_of_bytes("alice", text, context, "alice");
}

Dataset npz_data(const std::filesystem::path& path) {
    const std::unique_ptr<TensorFile> file = open_tensor_file(path);
    const std::size_t ix = find_array(*file, "x"), iy = find_array(*file, "y");
    const TensorEntry &x = file->tensors()[ix], &y = file->tensors()[iy];
    const std::string shapes = "x has shape " + shape_text(x.shape) + ", y " + shape_text(y.shape) + ": ";
    if (x.shape.empty() || y.shape.empty() || x.shape[0] != y.shape[0] || x.shape[0] < 5)
        throw FileError(path, shapes + "expected the same number of examples, five or more, along their first axes");
    if (x.count == 0 || y.count == 0)
        throw FileError(path, shapes + "an example without numbers; expected at least one feature and one target");
    const auto inputs = std::make_shared<std::vector<float>>(read_floats(*file, ix)),
               targets = std::make_shared<std::vector<float>>(read_floats(*file, iy));
    for (const auto* const values : {inputs.get(), targets.get()})
        if (const auto bad = std::ranges::find_if(*values, [](float v) { return !std::isfinite(v); });
            bad != values->end())
            throw FileError(path, std::string(values == inputs.get() ? "x" : "y") + ": element " +
                                      std::to_string(bad - values->begin()) + " is not finite");

    Fingerprint fingerprint;
    fingerprint.add(std::as_bytes(std::span(*inputs)));
    fingerprint.add(std::as_bytes(std::span(*targets)));
    Dataset d{.name = path.filename(), .fingerprint = fingerprint.text(), .input = {}, .target = {}, .read = {}};
    const auto count = static_cast<std::int64_t>(x.shape[0]);
    d.input.assign(x.shape.begin() + 1, x.shape.end());
    if (d.input.empty()) d.input = {1};
    const bool whole = std::ranges::all_of(*targets, [](float v) { return v >= 0 && v == std::floor(v) && v < 65536; });
    if (y.shape.size() == 1 && whole) d.classes = static_cast<std::int64_t>(*std::ranges::max_element(*targets)) + 1;
    else d.target = {static_cast<std::int64_t>(y.count) / count};
    split(d, count,
          [inputs, targets, n = element_count(d.input), m = element_count(d.target)](std::int64_t i, float* input,
                                                                                     float* target) {
              std::copy_n(inputs->begin() + i * n, n, input);
              std::copy_n(targets->begin() + i * m, m, target);
          });
    return d;
}

void read_batch(const Dataset& data, std::int64_t first, std::int64_t batch, Shuffle* shuffle, float* input,
                float* target) {
    for (std::int64_t i = first; i < first + batch; ++i) {
        const std::int64_t example = shuffle != nullptr ? (*shuffle)[i] : data.training + i % data.validation;
        data.read(example, input, target);
        input += element_count(data.input);
        target += element_count(data.target);
    }
}

} // namespace amp
