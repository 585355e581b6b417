#include <ampscope/sim/findings/detail/adam_source.h>

#include <algorithm>
#include <numeric>

#include <sys/resource.h>

namespace amp::detail {

namespace fs = std::filesystem;

std::shared_ptr<const TensorFile> OpenFiles::operator()(const fs::path& path) {
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = files_.find(path); found != files_.end()) return found->second;
    }
    std::shared_ptr<const TensorFile> file = open_tensor_file(path);
    const std::lock_guard lock(mutex_);
    if (files_.size() < most_) files_.emplace(path, file);
    return file;
}

std::size_t OpenFiles::most_open() {
    rlimit limit{};
    const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0;
    return known ? static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur / 16, 64)) : 0;
}

std::vector<float> TensorPlace::read(OpenFiles& open, std::uint64_t begin, std::uint64_t end) const {
    const auto opened = open(file);
    std::vector<float> values;
    for (const StoredNumber& n : NumberReader(*opened, tensor).read(begin, end))
        values.push_back(static_cast<float>(n.value() / scale));
    return values;
}

std::uint64_t AdamSource::block(OpenFiles& open, std::uint64_t numbers) const {
    const auto is_stream = [&](const TensorPlace& p) { return !open(p.file)->random_access(p.tensor); };
    if (std::ranges::any_of(gradients, is_stream)) return std::max<std::uint64_t>(numbers, 1);
    constexpr std::uint64_t most = 1 << 16, least = 1 << 12, room = 1 << 24, updates = 1 << 24;
    const std::uint64_t fitting = std::clamp(room / gradients.size() / least * least, least, most);
    const auto made = static_cast<std::uint64_t>(std::reduce(repeats.begin(), repeats.end()));
    return std::clamp<std::uint64_t>(updates * gradients.size() / std::max<std::uint64_t>(made, 1), 1, fitting);
}

AdamHistory AdamSource::read(OpenFiles& open, std::uint64_t begin, std::uint64_t end) const {
    const auto numbers = [&](const std::optional<TensorPlace>& place) {
        return place ? place->read(open, begin, end) : std::vector<float>();
    };
    AdamHistory history{.weight = numbers(weight),
                        .m = numbers(m),
                        .v = numbers(v),
                        .first = first,
                        .gradients = {},
                        .repeats = repeats,
                        .settings = settings};
    for (const TensorPlace& place : gradients) history.gradients.push_back(place.read(open, begin, end));
    return history;
}

StateReader::StateReader(const AdamSource& source, OpenFiles& open) : source_(source) {
    const auto opened = [&](const std::optional<TensorPlace>& place) {
        Part part;
        if (!place) return part;
        part.file = open(place->file);
        part.numbers = std::make_unique<NumberReader>(*part.file, place->tensor);
        return part;
    };
    weight_ = opened(source.weight);
    m_ = opened(source.m);
    v_ = opened(source.v);
}

std::vector<float> StateReader::numbers(const Part& part, std::uint64_t end) const {
    std::vector<float> values;
    if (!part.numbers) return values;
    for (const StoredNumber& n : part.numbers->read(at_, end)) values.push_back(static_cast<float>(n.value()));
    return values;
}

AdamHistory StateReader::read(std::uint64_t end) {
    AdamHistory history{.weight = numbers(weight_, end),
                        .m = numbers(m_, end),
                        .v = numbers(v_, end),
                        .first = source_.first,
                        .gradients = {},
                        .repeats = {},
                        .settings = source_.settings};
    at_ = end;
    return history;
}

AdamHistory part_of(const AdamHistory& history, std::uint64_t begin, std::uint64_t end) {
    const auto part = [&](const std::vector<float>& all) {
        const auto at = [&](std::uint64_t i) { return all.begin() + static_cast<std::ptrdiff_t>(i); };
        return all.empty() ? std::vector<float>() : std::vector<float>(at(begin), at(end));
    };
    AdamHistory some{.weight = part(history.weight),
                     .m = part(history.m),
                     .v = part(history.v),
                     .first = history.first,
                     .gradients = {},
                     .repeats = history.repeats,
                     .settings = history.settings};
    for (const std::vector<float>& gradient : history.gradients) some.gradients.push_back(part(gradient));
    return some;
}

std::string parameter_of(const std::string& gradient) {
    return gradient.ends_with(".grad") ? gradient.substr(0, gradient.size() - 5) : gradient;
}

void find_state(OpenFiles& open, const fs::path& file, const std::string& gradient, std::uint64_t count,
                AdamSource& source) {
    const std::string parameter = parameter_of(gradient);
    const auto opened = open(file);
    const auto place = [&](const std::string& name) -> std::optional<TensorPlace> {
        const auto found = std::ranges::find(opened->tensors(), name, &TensorEntry::name);
        if (found == opened->tensors().end() || found->count != count) return std::nullopt;
        return TensorPlace{file, static_cast<std::size_t>(found - opened->tensors().begin())};
    };
    source.weight = place(parameter);
    source.m = place(parameter + ".m");
    source.v = place(parameter + ".v");
    if (!source.m || !source.v) throw FileError(file, "holds no state of " + parameter);
}

} // namespace amp::detail
