#include <ampscope/sim/findings/histogram.h>

#include <ampscope/sim/findings/detail/histogram_count.h>
#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/io/folder.h>

#include <algorithm>

namespace amp {

HistogramFindings histogram_findings(const std::vector<std::filesystem::path>& paths, const HistogramOptions& options,
                                     const Watch& watch) {
    HistogramFindings findings;
    detail::Selection selection(paths, options, findings);
    std::vector<detail::Piece> pieces;
    std::uint64_t bytes = 0;
    for (const RecordedTensor& tensor : selection.recording.tensors) {
        pieces.push_back({&tensor});
        bytes += selection.bytes(tensor);
    }
    for (const RecordedLog& log : selection.recording.logs) bytes += file_bytes(log.file);
    const Progress progress = begin(watch, bytes);
    std::vector<FailedCount> failed;
    detail::count_pieces(pieces, selection, progress, findings, failed);
    for (const RecordedLog& log : selection.recording.logs)
        detail::count_log(log, selection, progress, findings, failed);
    if (!selection.recording.logs.empty()) // as a merge of reports orders them
        std::ranges::stable_sort(findings.tensors, {},
                                 [](const HistogramEntry& t) { return std::filesystem::path(t.file); });
    detail::summarize(findings, paths, options);
    return findings;
}

} // namespace amp
