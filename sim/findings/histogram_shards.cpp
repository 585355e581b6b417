#include <ampscope/sim/findings/histogram_shards.h>

#include <ampscope/sim/base/fingerprint.h>
#include <ampscope/sim/findings/detail/histogram_count.h>
#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/io/folder.h>

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace amp {

namespace {

/// All bytes to count in one line, tensor after tensor and then the logs, cut into shards of equal length.
class ShardPlan {
  public:
    ShardPlan(const detail::Selection& selection, const HistogramOptions& options)
        : selection_(selection), splits_(!options.error && options.block == 0 && options.recipes.empty() &&
                                         options.policy.rounding != Rounding::stochastic) {
        const auto add = [this](std::uint64_t bytes) {
            starts_.push_back(bytes_);
            bytes_ += bytes;
        };
        for (const RecordedTensor& tensor : selection.recording.tensors) add(tensor.entry.bytes);
        for (const RecordedLog& log : selection.recording.logs) add(file_bytes(log.file));
    }

    void cut(std::uint64_t of) { of_ = of; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

    [[nodiscard]] std::vector<detail::Piece> pieces(std::uint64_t number) const {
        std::vector<detail::Piece> pieces;
        const std::vector<RecordedTensor>& tensors = selection_.recording.tensors;
        for (std::size_t i = first_within(number); i < tensors.size() && starts_[i] <= cut_before(number + 1); ++i) {
            const std::uint64_t begin = elements_before(i, number), end = elements_before(i, number + 1),
                                count = tensors[i].entry.count;
            if (begin < end || (count == 0 && holds(number, i)))
                pieces.push_back(
                    {&tensors[i], ShardedTensor{.index = i, .begin = begin, .end = end, .elements = count}});
        }
        return pieces;
    }

    /// The logs that begin in the shard.
    [[nodiscard]] std::vector<const RecordedLog*> logs(std::uint64_t number) const {
        std::vector<const RecordedLog*> logs;
        const std::size_t first = selection_.recording.tensors.size();
        for (std::size_t i = first; i < starts_.size(); ++i)
            if (holds(number, i)) logs.push_back(&selection_.recording.logs[i - first]);
        return logs;
    }

    /// The bytes that are read to count shards [first, last], in all passes.
    [[nodiscard]] std::uint64_t work(std::uint64_t first, std::uint64_t last) const {
        std::uint64_t work = 0;
        for (std::uint64_t number = first; number <= last; ++number) {
            for (const detail::Piece& piece : pieces(number)) {
                const std::uint64_t all = std::max<std::uint64_t>(piece.tensor->entry.count, 1);
                const std::uint64_t passes =
                    selection_.bytes(*piece.tensor) / std::max<std::uint64_t>(piece.tensor->entry.bytes, 1);
                const std::uint64_t counted = piece.shard->end - piece.shard->begin;
                work += static_cast<std::uint64_t>(static_cast<double>(piece.tensor->entry.bytes) *
                                                   static_cast<double>(counted) / static_cast<double>(all)) *
                        passes;
            }
            for (const RecordedLog* log : logs(number)) work += file_bytes(log->file);
        }
        return work;
    }

    /// A fingerprint of what all shards together count, and of how each tensor is read.
    [[nodiscard]] std::string recording() const {
        Fingerprint all;
        const auto add = [&](const std::string& text) {
            all.add(std::as_bytes(std::span(text.data(), text.size() + 1)));
        };
        for (const RecordedTensor& t : selection_.recording.tensors)
            add(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", t.file.string(), t.entry.name, t.step.value_or(-1),
                            t.entry.bytes, info(t.entry.dtype).name, t.entry.stored().name, name_of(t.kind), t.backward,
                            t.recorded_scale));
        for (const RecordedLog& log : selection_.recording.logs)
            add(fmt::format("{}\n{}", log.file.string(), file_bytes(log.file)));
        return all.text();
    }

  private:
    /// The first byte of a shard.
    [[nodiscard]] std::uint64_t cut_before(std::uint64_t number) const {
        __extension__ typedef unsigned __int128 Wide;
        return static_cast<std::uint64_t>(Wide{bytes_} * (number - 1) / of_);
    }
    /// Whether a tensor or log begins in the shard. What has no bytes, at the end, say, belongs to one of them, too.
    [[nodiscard]] bool holds(std::uint64_t number, std::size_t i) const {
        const std::uint64_t start = std::min(starts_[i], bytes_ == 0 ? 0 : bytes_ - 1);
        return bytes_ == 0 ? number == 1 : cut_before(number) <= start && start < cut_before(number + 1);
    }
    /// The first tensor that may have bytes in the shard.
    [[nodiscard]] std::size_t first_within(std::uint64_t number) const {
        const auto after = std::ranges::upper_bound(starts_, cut_before(number));
        auto i = static_cast<std::size_t>(after - starts_.begin());
        i = i == 0 ? 0 : i - 1;
        while (i > 0 && starts_[i - 1] == starts_[i]) --i; // tensors without bytes
        return std::min(i, selection_.recording.tensors.size());
    }
    /// How many elements of a tensor lie before the shard: whole blocks, all or none.
    [[nodiscard]] std::uint64_t elements_before(std::size_t i, std::uint64_t number) const {
        const TensorEntry& entry = selection_.recording.tensors[i].entry;
        const std::uint64_t cut = cut_before(number);
        if (cut <= starts_[i]) return 0;
        const bool splits = splits_ && entry.repeats == 1 && selection_.recording.tensors[i].random_access;
        if (cut >= starts_[i] + entry.bytes || !splits) return entry.count;
        const auto bits = static_cast<std::uint64_t>(info(entry.dtype).bits);
        return (cut - starts_[i]) * 8 / bits / sum_block * sum_block;
    }

    const detail::Selection& selection_;
    bool splits_;
    std::vector<std::uint64_t> starts_;
    std::uint64_t bytes_ = 0, of_ = 1;
};

/// Counts the logs of a shard. Their lines have positions beyond those of all tensors.
void count_logs(std::span<const RecordedLog* const> logs, const detail::Selection& selection, const Progress& progress,
                HistogramFindings& findings) {
    for (const RecordedLog* log : logs) {
        const auto number = static_cast<std::uint64_t>(log - selection.recording.logs.data()) + 1;
        const std::size_t before = findings.tensors.size();
        detail::count_log(*log, selection, progress, findings, findings.shards->failed);
        for (std::size_t i = before; i < findings.tensors.size(); ++i)
            findings.tensors[i].shard = {.index = (number << 32) + (i - before)};
    }
}

} // namespace

ShardSource single_shard(std::uint64_t number, std::uint64_t of) {
    return {.of = [of](std::uint64_t, const std::string&) { return of; },
            .next = [left = std::optional(number)]() mutable { return std::exchange(left, std::nullopt); },
            .only = number};
}

HistogramFindings histogram_shards(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
                                   const ShardSource& source, const Watch& watch) {
    const auto delayed =
        std::ranges::find_if(options.recipes, [](const RecipeChoice& choice) { return choice.recipe.delayed(); });
    if (delayed != options.recipes.end())
        throw std::invalid_argument(fmt::format(
            "shards: {} takes its scales from the steps before: count all steps in one process", delayed->text));
    HistogramFindings findings;
    detail::Selection selection(paths, options, findings);
    ShardPlan plan(selection, options);
    findings.shards = CountedShards{.recording = plan.recording()};
    findings.shards->of = source.of(plan.bytes(), findings.shards->recording);
    plan.cut(findings.shards->of);
    const std::uint64_t of = findings.shards->of;
    const Progress progress = begin(watch, plan.work(source.only.value_or(1), source.only.value_or(of)));
    while (const std::optional<std::uint64_t> number = source.next()) {
        findings.shards->numbers.push_back(*number);
        detail::count_pieces(plan.pieces(*number), selection, progress, findings, findings.shards->failed);
        count_logs(plan.logs(*number), selection, progress, findings);
    }
    std::ranges::sort(findings.shards->numbers);
    std::ranges::stable_sort(findings.tensors, {}, [](const HistogramEntry& t) {
        return std::tuple(std::filesystem::path(t.file), t.shard->index, t.shard->begin);
    });
    detail::summarize(findings, paths, options);
    return findings;
}

} // namespace amp
