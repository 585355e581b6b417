#include <ampscope/tools/amp-histogram/find.h>

#include <ampscope/sim/findings/histogram_shards.h>
#include <ampscope/tools/amp-histogram/data_report.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace amp::histogram_tool {

namespace {

std::span<const std::byte> raw(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What ranks send to rank 0 begins with one of these: they ask for a shard, with the fingerprint of the recording that
/// they see; or they are done, with their report, or with why they could not count.
constexpr char asks = '?', reports = '=', refuses = '!';

/// The answer of rank 0: a shard's number.
constexpr std::string_view no_more = "0", other_recording = "other";

/// How many shards the ranks take in turn: several for each, so that none waits long for the last, but none of less
/// than 16 MiB, which is counted in some milliseconds.
std::uint64_t shards_for(std::uint64_t bytes, int ranks) {
    constexpr std::uint64_t least = 16 << 20, for_each = 16, most = 1'000'000;
    const std::uint64_t wanted = static_cast<std::uint64_t>(ranks) * for_each;
    return std::clamp<std::uint64_t>(bytes / least, 1, std::min(wanted, most));
}

/// Progress of several threads: of what rank 0 counts, and of the shards that the others have counted.
class SharedProgress {
  public:
    /// A Watch whose progress this is.
    Watch watch(const Watch& shown) {
        if (!shown) return {};
        return [this, shown](std::uint64_t total) -> Progress {
            const std::lock_guard lock(mutex_);
            total_ = total;
            progress_ = shown(total);
            return [this](std::uint64_t done) { add(done); };
        };
    }
    /// A shard of so many was counted elsewhere.
    void add_shard(std::uint64_t of) {
        if (std::uint64_t done = total_ / of; done > 0) add(done);
    }

  private:
    void add(std::uint64_t done) {
        const std::lock_guard lock(mutex_);
        if (progress_) progress_(done);
    }

    std::mutex mutex_;
    Progress progress_;
    std::atomic<std::uint64_t> total_ = 0;
};

/// Rank 0 hands out the numbers of shards, to itself and by a thread to the others, whose reports it collects.
class Dealer {
  public:
    Dealer(Ranks& ranks, SharedProgress& progress)
        : ranks_(ranks), progress_(progress), messages_(static_cast<std::size_t>(ranks.size())) {}

    void open(std::uint64_t of, const std::string& recording) {
        of_ = of;
        recording_ = recording;
        server_ = std::jthread([this] { serve(); });
    }
    std::optional<std::uint64_t> next() {
        const std::uint64_t number = ++dealt_;
        return number <= of_ ? std::optional(number) : std::nullopt;
    }
    /// Waits for the last messages of all other ranks, and returns them by rank.
    std::vector<std::string> close() {
        server_.join();
        return std::move(messages_);
    }

  private:
    void serve() {
        std::vector<bool> counts(messages_.size()); // ranks that have a shard
        for (int left = ranks_.size() - 1; left > 0;) {
            const auto [sender, bytes] = ranks_.receive(Ranks::anyone);
            const auto rank = static_cast<std::size_t>(sender);
            std::string message = text_of(bytes);
            if (!message.starts_with(asks)) {
                messages_[rank] = std::move(message);
                --left;
                continue;
            }
            if (counts[rank]) progress_.add_shard(of_);
            const bool same = std::string_view(message).substr(1) == recording_;
            const std::optional<std::uint64_t> number = same ? next() : std::nullopt;
            counts[rank] = number.has_value();
            ranks_.send(sender,
                        raw(number ? fmt::format("{}", *number) : std::string(same ? no_more : other_recording)));
        }
    }

    Ranks& ranks_;
    SharedProgress& progress_;
    std::vector<std::string> messages_;
    std::uint64_t of_ = 1;
    std::string recording_;
    std::atomic<std::uint64_t> dealt_ = 0;
    std::jthread server_;
};

/// A rank other than 0, which asks for its shards.
class Asker {
  public:
    explicit Asker(Ranks& ranks) : ranks_(ranks) {}

    void open(const std::string& recording) { recording_ = recording; }
    std::optional<std::uint64_t> next() {
        ranks_.send(0, raw(asks + recording_));
        const std::string answer = text_of(ranks_.receive(0).second);
        refused_ = answer == other_recording;
        std::uint64_t number = 0;
        std::from_chars(answer.data(), answer.data() + answer.size(), number);
        return number == 0 ? std::nullopt : std::optional(number);
    }
    [[nodiscard]] bool refused() const { return refused_; }

  private:
    Ranks& ranks_;
    std::string recording_;
    bool refused_ = false;
};

std::string report_of(const HistogramFindings& findings, const HistogramOptions& options) {
    std::string text;
    write_json(findings, options, [&](std::string_view piece) { text += piece; });
    return text;
}

/// Merges the report of rank 0 and the last messages of the others.
HistogramFindings merge(std::string own, std::vector<std::string> messages, const HistogramToolOptions& options) {
    std::vector<ReportSource> sources;
    std::vector<std::string> errors;
    messages[0] = reports + std::move(own);
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
        const std::string name = fmt::format("rank {:0{}}", rank, fmt::formatted_size("{}", messages.size() - 1));
        std::string text = messages[rank].substr(1);
        if (messages[rank].starts_with(reports)) sources.emplace_back(name, std::move(text));
        else errors.push_back(name + " sees other files than rank 0, and counted nothing" + text);
    }
    HistogramFindings findings = merge_histogram_reports(sources, options.paths, options);
    findings.errors.insert(findings.errors.end(), errors.begin(), errors.end());
    return findings;
}

} // namespace

HistogramFindings find(const HistogramToolOptions& options, const Watch& watch) {
    if (options.merge) return merged_histogram_findings(options.paths, options, watch);
    if (!options.shard) return histogram_findings(options.paths, options, watch);
    const auto [number, of] = *options.shard;
    return histogram_shards(options.paths, options, single_shard(number, of), watch);
}

std::optional<HistogramFindings> find_with_ranks(const HistogramToolOptions& options, Ranks& ranks,
                                                 const Watch& watch) {
    if (ranks.rank() == 0) {
        SharedProgress progress;
        Dealer dealer(ranks, progress);
        const ShardSource source{.of =
                                     [&](std::uint64_t bytes, const std::string& recording) {
                                         const std::uint64_t of = shards_for(bytes, ranks.size());
                                         dealer.open(of, recording);
                                         return of;
                                     },
                                 .next = [&] { return dealer.next(); }};
        const HistogramFindings own = histogram_shards(options.paths, options, source, progress.watch(watch));
        return merge(report_of(own, options), dealer.close(), options);
    }
    Asker asker(ranks);
    const ShardSource source{.of =
                                 [&](std::uint64_t bytes, const std::string& recording) {
                                     asker.open(recording);
                                     return shards_for(bytes, ranks.size());
                                 },
                             .next = [&] { return asker.next(); }};
    const HistogramFindings own = histogram_shards(options.paths, options, source);
    const std::string why = own.errors.empty() ? "" : ": " + own.errors.front();
    ranks.send(0, raw(asker.refused() ? refuses + why : reports + report_of(own, options)));
    return std::nullopt;
}

} // namespace amp::histogram_tool
