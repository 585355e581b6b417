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

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What ranks send to rank 0 begins with one of these: they ask for a shard, with the fingerprint of the recording that
/// they see; or they are done, with their report, or with why they could not count.
constexpr char asks = '?', reports = '=', refuses = '!';

/// The answer to a rank that sees another recording than rank 0. The others are a shard's number, or 0 for the last.
constexpr std::string_view other_recording = "!";

/// How many shards the ranks take in turn: several for each, so that none waits long for the last, but none of less
/// than 16 MiB, which is counted in some milliseconds.
std::uint64_t shards_for(std::uint64_t bytes, int ranks) {
    constexpr std::uint64_t least = 16 << 20, for_each = 16, most = 1'000'000;
    const std::uint64_t wanted = static_cast<std::uint64_t>(ranks) * for_each;
    return std::clamp<std::uint64_t>(bytes / least, 1, std::min(wanted, most));
}

/// Rank 0 hands out the numbers of shards, to itself and by a thread to the others, whose reports it collects.
class Dealer {
  public:
    explicit Dealer(Ranks& ranks) : ranks_(ranks), messages_(static_cast<std::size_t>(ranks.size())) {}

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
        for (int left = ranks_.size() - 1; left > 0;) {
            const auto [rank, bytes] = ranks_.receive(Ranks::anyone);
            const std::string message = text_of(bytes);
            if (!message.starts_with(asks)) {
                messages_[static_cast<std::size_t>(rank)] = message;
                --left;
            } else if (message.substr(1) == recording_) {
                ranks_.send(rank, bytes_of(fmt::format("{}", next().value_or(0))));
            } else {
                ranks_.send(rank, bytes_of(std::string(other_recording)));
            }
        }
    }

    Ranks& ranks_;
    std::vector<std::string> messages_;
    std::uint64_t of_ = 1;
    std::string recording_;
    std::atomic<std::uint64_t> dealt_ = 0;
    std::jthread server_;
};

/// The next shard for a rank other than 0; none: there are no more, or `refused`.
std::optional<std::uint64_t> ask(Ranks& ranks, const std::string& recording, bool& refused) {
    ranks.send(0, bytes_of(asks + recording));
    const std::string answer = text_of(ranks.receive(0).second);
    std::uint64_t number = 0;
    refused = answer == other_recording;
    std::from_chars(answer.data(), answer.data() + answer.size(), number);
    return number == 0 ? std::nullopt : std::optional(number);
}

std::string report_of(const HistogramFindings& findings, const HistogramOptions& options) {
    std::string text;
    write_json(findings, options, [&](std::string_view piece) { text += piece; });
    return text;
}

/// Merges the report of rank 0 and the last messages of the others.
HistogramFindings merge(std::string own, std::vector<std::string> messages, const HistogramOptions& options) {
    std::vector<ReportSource> sources;
    std::vector<std::string> errors;
    messages[0] = reports + std::move(own);
    for (std::size_t rank = 0; rank < messages.size(); ++rank) {
        const std::string name = fmt::format("rank {:0{}}", rank, fmt::formatted_size("{}", messages.size() - 1));
        std::string text = messages[rank].substr(1);
        if (messages[rank].starts_with(reports)) sources.emplace_back(name, std::move(text));
        else errors.push_back(name + " sees other files than rank 0, and counted nothing" + text);
    }
    HistogramFindings findings = merge_histogram_reports(sources, options);
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
    std::optional<Dealer> dealer;
    std::string seen;
    bool refused = false;
    if (ranks.rank() == 0) dealer.emplace(ranks);
    const ShardSource source{[&](std::uint64_t bytes, const std::string& recording) {
                                 const std::uint64_t of = shards_for(bytes, ranks.size());
                                 seen = recording;
                                 if (dealer) dealer->open(of, recording);
                                 return of;
                             },
                             [&] { return dealer ? dealer->next() : ask(ranks, seen, refused); }};
    const HistogramFindings own = histogram_shards(options.paths, options, source, watch);
    if (dealer) return merge(report_of(own, options), dealer->close(), options);
    if (refused) ranks.send(0, bytes_of(refuses + (own.errors.empty() ? std::string() : ": " + own.errors.front())));
    else ranks.send(0, bytes_of(reports + report_of(own, options)));
    return std::nullopt;
}

} // namespace amp::histogram_tool
