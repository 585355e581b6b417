// The precision comparison report: one document, as HTML, Markdown or JSON.
#pragma once

#include <ampscope/sim/base/tensor_names.h>
#include <ampscope/sim/findings/comparison.h>
#include <ampscope/sim/findings/mismatch.h>
#include <ampscope/tools/amp-report/options.h>
#include <ampscope/tools/document/document.h>

namespace amp::report_tool {

struct Report {
    ComparisonFindings findings;
    std::vector<std::string> commands; ///< the commands that trained the runs, if known
    struct Against {
        std::string run; ///< the name of the run in findings
        MismatchReport report;
    };
    std::vector<Against> against{}; ///< what amp-train --against left in the folders of runs
};

Document document_of(const Report& report, const ReportOptions& options);

/// Schema version 3: in version 2 the kinds "weight" and "activation" meant gradients. No time, no host: the same
/// inputs give the same bytes.
std::string json_report(const Report& report, const ReportOptions& options);

/// The rows of all groups, as the report has them, each with the name of its "group".
std::string json_rows(const ComparisonFindings& findings);

/// The tables of a group's section; those of which nothing is known are left out.
std::vector<TableBlock> comparison_tables(const ComparisonGroup& group, const ReportOptions& options);
std::optional<TableBlock> cost_table(const ComparisonGroup& group, const ReportOptions& options);
std::optional<TableBlock> stability_table(const ComparisonGroup& group, const ComparisonLimits& limits);
std::optional<TableBlock> departure_table(const ComparisonGroup& group);
/// `names`: those of the run's tensors.
TableBlock worst_tensor_table(const RecordedRun& run, const NamesBelow& names, const ReportOptions& options);
/// How formats hold the weights, activations and gradients of a run.
TableBlock fit_table(const RecordedRun& run, double limit);
std::optional<TableBlock> scaled_tensor_table(const RecordedRun& run, const ReportOptions& options);

/// The figures of a group's section; empty if nothing is known.
std::optional<FigureBlock> loss_figure(const ComparisonGroup& group);
std::optional<FigureBlock> difference_figure(const ComparisonGroup& group, const ComparisonLimits& limits);
std::optional<FigureBlock> gradient_figure(const ComparisonGroup& group, const SpikeLimits& limits);
std::optional<FigureBlock> scale_figure(const ComparisonGroup& group);
std::vector<FigureBlock> magnitude_figures(const RecordedRun& run);
std::vector<FigureBlock> zeroed_figures(const RecordedRun& run);
/// The magnitudes of what is no gradient.
std::vector<FigureBlock> forward_figures(const RecordedRun& run);
FigureBlock rate_figure(const RecordedRun& run, const RecommendationOptions& options);
std::vector<FigureBlock> scaled_cast_figures(const RecordedRun& run);

} // namespace amp::report_tool
