#include <ampscope/sim/findings/detail/histogram_join.h>

#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/sim/findings/detail/histogram_count.h>
#include <ampscope/sim/findings/detail/histogram_summary.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace amp::detail {

namespace {

/// Leaves out reports that have shards of other reports, and says so and which shards are missing. Returns whether none
/// is.
bool keep_each_once(std::vector<NamedReport>& shards, std::vector<std::string>& errors) {
    std::map<std::uint64_t, std::filesystem::path> owners;
    const std::uint64_t of = shards.front().report.shards->of;
    std::vector<NamedReport> kept;
    for (NamedReport& shard : shards) {
        const std::vector<std::uint64_t>& numbers = shard.report.shards->numbers;
        const auto twice = std::ranges::find_if(numbers, [&](std::uint64_t n) { return owners.contains(n); });
        if (twice != numbers.end()) {
            errors.push_back(fmt::format("{}: shard {} of {} is in {}, too; counted once", shard.path.string(), *twice,
                                         of, owners.at(*twice).string()));
            continue;
        }
        for (const std::uint64_t n : numbers) owners.emplace(n, shard.path);
        kept.push_back(std::move(shard));
    }
    shards = std::move(kept);
    if (owners.size() == of) return true;
    constexpr std::size_t most = 10; // numbers in a line
    std::vector<std::uint64_t> missing;
    for (std::uint64_t n = 1; n <= of && missing.size() < most; ++n)
        if (!owners.contains(n)) missing.push_back(n);
    const std::uint64_t others = of - owners.size() - missing.size();
    errors.push_back(fmt::format("{}: {} {}{} of {} {} in no report", shards.front().path.string(),
                                 of - owners.size() == 1 ? "shard" : "shards", fmt::join(missing, ", "),
                                 others == 0 ? "" : " and " + plural(others, "other"), of,
                                 of - owners.size() == 1 ? "is" : "are"));
    return false;
}

/// What nothing may be counted of: files, by their names, and tensors, by their positions.
struct Failed {
    std::set<std::string> files{};
    std::set<std::uint64_t> tensors{};

    [[nodiscard]] bool has(const HistogramEntry& entry) const {
        return files.contains(entry.file) || tensors.contains(entry.shard->index);
    }
};

/// Adds what shards could not read: errors of the recording, which all of them have, and those of what one of them had
/// to give up, in the order in which one process would have met them. Returns what was given up.
Failed take_errors(const std::vector<NamedReport>& shards, std::vector<std::string>& errors) {
    std::vector<FailedCount> failed;
    std::set<std::string> given_up, seen;
    for (const NamedReport& shard : shards)
        for (const FailedCount& f : shard.report.shards->failed) {
            failed.push_back(f);
            given_up.insert(f.error);
        }
    std::ranges::stable_sort(failed, {}, [](const FailedCount& f) { return std::pair(f.index, f.begin); });
    for (const NamedReport& shard : shards)
        for (const std::string& error : shard.report.errors)
            if (!given_up.contains(error) && seen.insert(error).second) errors.push_back(error);
    std::ranges::copy(distinct_errors(failed), std::back_inserter(errors));
    Failed all;
    for (const FailedCount& f : failed)
        if (f.whole) all.files.insert(f.file);
        else all.tensors.insert(f.index);
    return all;
}

/// Whether two parts are of one tensor, counted in the same way.
bool are_of_one(const HistogramEntry& a, const HistogramEntry& b) {
    return a.file == b.file && a.name == b.name && a.step == b.step && a.kinds == b.kinds && a.dtype == b.dtype &&
           a.shape == b.shape && a.recorded_scale == b.recorded_scale && a.shard->elements == b.shard->elements &&
           a.shard->backward == b.shard->backward;
}

/// Makes one tensor of its parts, which lie in order. Returns none if they are not all of it.
std::optional<HistogramEntry> whole_of(std::span<HistogramEntry> parts, const HistogramOptions& options) {
    HistogramEntry whole = std::move(parts.front());
    ExactSum absolute = whole.shard->absolute, squares = whole.shard->squares;
    std::uint64_t reached = whole.shard->begin == 0 ? whole.shard->end : 0;
    for (const HistogramEntry& part : parts.subspan(1)) {
        if (part.shard->begin != reached || !are_of_one(whole, part)) return std::nullopt;
        merge_into(whole, part, options);
        absolute += part.shard->absolute;
        squares += part.shard->squares;
        reached = part.shard->end;
    }
    if (reached != whole.shard->elements) return std::nullopt;
    whole.tensors = 1;
    whole.magnitudes.sums = {absolute.value(), squares.value()};
    // What a record hides depends on all of its numbers.
    RecordedTensor recorded{.entry = {}, .kind = TensorKind::weight_gradient, .backward = whole.shard->backward};
    for (std::size_t kind = 0; kind < tensor_kind_names.size(); ++kind)
        if (whole.kinds.has(static_cast<TensorKind>(kind))) recorded.kind = static_cast<TensorKind>(kind);
    const auto row = std::ranges::find(dtypes, whole.dtype, &DTypeInfo::name);
    if (row == dtypes.end()) return std::nullopt;
    recorded.entry.dtype = static_cast<DType>(row - dtypes.begin());
    whole.censoring = censoring_of(recorded, whole.magnitudes.histogram, *whole.recorded_scale);
    return whole;
}

} // namespace

HistogramReport join_shards(std::vector<NamedReport> shards, const HistogramOptions& options,
                            std::vector<std::string>& errors) {
    const std::string first = shards.front().path.string();
    const bool complete = keep_each_once(shards, errors);
    const Failed failed = take_errors(shards, errors);
    HistogramReport joined;
    std::vector<HistogramEntry> pieces;
    for (NamedReport& shard : shards) {
        joined.other_kinds |= shard.report.other_kinds;
        for (std::string& warning : shard.report.warnings)
            if (std::ranges::find(joined.warnings, warning) == joined.warnings.end())
                joined.warnings.push_back(std::move(warning));
        std::ranges::copy_if(std::make_move_iterator(shard.report.tensors.begin()),
                             std::make_move_iterator(shard.report.tensors.end()), std::back_inserter(pieces),
                             [&](const HistogramEntry& entry) { return !failed.has(entry); });
    }
    const auto place = [](const HistogramEntry& e) {
        return std::tuple(std::filesystem::path(e.file), e.shard->index, e.shard->begin);
    };
    std::ranges::stable_sort(pieces, {}, place);
    std::uint64_t left_out = 0;
    for (std::size_t begin = 0, end = 0; begin < pieces.size(); begin = end) {
        while (end < pieces.size() && pieces[end].shard->index == pieces[begin].shard->index &&
               pieces[end].file == pieces[begin].file)
            ++end;
        std::optional<HistogramEntry> whole;
        if (pieces[begin].shard->is_part()) whole = whole_of(std::span(pieces).subspan(begin, end - begin), options);
        else if (end - begin == 1) whole = std::move(pieces[begin]);
        if (!whole) {
            ++left_out;
            continue;
        }
        whole->shard.reset();
        joined.tensors.push_back(std::move(*whole));
    }
    if (left_out > 0)
        errors.push_back(fmt::format("{}: {} of its tensors are {}, and left out", first, left_out,
                                     complete ? "no whole ones in all shards together" : "incomplete"));
    return joined;
}

} // namespace amp::detail
