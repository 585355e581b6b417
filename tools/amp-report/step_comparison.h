// The report on one step of a model in several precisions, which ampscope.torch.compare saved.
#pragma once

#include <ampscope/sim/findings/step_comparison.h>
#include <ampscope/tools/document/document.h>

namespace amp::report_tool {

/// `worst`: rows of a table; 0: all.
Document document_of(const StepComparison& comparison, std::size_t worst);

/// The errors that modules add, and those of the gradients of their weights.
std::vector<Figure> figures_of(const StepComparison& comparison);

} // namespace amp::report_tool
