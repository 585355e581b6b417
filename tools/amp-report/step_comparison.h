// The report on one step of a model in several precisions, which ampscope.torch.compare saved.
#pragma once

#include <ampscope/sim/findings/step_comparison.h>
#include <ampscope/tools/amp-report/options.h>
#include <ampscope/tools/document/document.h>

namespace amp::report_tool {

/// `worst`: rows of a table; 0: all.
Document document_of(const StepComparison& comparison, std::size_t worst);

/// The errors that modules add, and those of the gradients of their weights.
std::vector<Figure> figures_of(const StepComparison& comparison);

/// The only input, if it is such a comparison; none if there is none among the inputs. Throws UsageError where there is
/// one beside other inputs, or with an option that it has no use for.
std::optional<std::filesystem::path> step_comparison_among(const ReportOptions& options);

} // namespace amp::report_tool
