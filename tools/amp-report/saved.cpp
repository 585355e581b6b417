#include <ampscope/tools/amp-report/saved.h>

#include <ampscope/sim/findings/mismatch.h>
#include <ampscope/tools/amp-report/step_comparison.h>
#include <ampscope/tools/document/mismatch.h>
#include <ampscope/tools/output.h>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace amp::report_tool {

namespace {

namespace fs = std::filesystem;

template <class Report>
SavedReport page_of(Report report, std::size_t worst) {
    return {document_of(report, worst), [report] { return json_text(json_of(report)); }};
}

struct SavedKind {
    std::string_view what;
    bool (*is)(const fs::path& file);
    SavedReport (*read)(const fs::path& file, std::size_t worst);
};
constexpr SavedKind kinds[] = {
    {"compares the modules of one step", is_step_comparison,
     [](const fs::path& file, std::size_t worst) { return page_of(read_step_comparison(file), worst); }},
    {"compares training with serving", is_mismatch_report,
     [](const fs::path& file, std::size_t worst) { return page_of(read_mismatch_report(file), worst); }}};

/// Throws FileError for a file in JSON that no other report is made of either.
void refuse_other_json(const std::vector<fs::path>& paths) {
    for (const fs::path& path : paths)
        if (path.extension() == ".json" && !path.string().ends_with(".safetensors.index.json") &&
            fs::is_regular_file(path))
            throw FileError(path, "is no report that is read: neither what ampscope.torch.compare() saved (its "
                                  "\"tool\" is \"ampscope.torch.compare\") nor what amp-train --against wrote (its "
                                  "\"report\" is \"training against serving\")");
}

} // namespace

std::optional<SavedReport> saved_report_among(const ReportOptions& options) {
    for (const SavedKind& kind : kinds) {
        const auto found = std::ranges::find_if(options.paths, kind.is);
        if (found == options.paths.end()) continue;
        if (options.paths.size() > 1)
            throw UsageError(found->string() + " " + std::string(kind.what) + ": it is reported by itself");
        return kind.read(*found, options.worst);
    }
    refuse_other_json(options.paths);
    return std::nullopt;
}

} // namespace amp::report_tool
