#include "harness.h"

#include <ampscope/sim/findings/detail/histogram_summary.h>
#include <ampscope/sim/findings/histogram_report.h>
#include <ampscope/tools/amp-histogram/data_report.h>

// A report of amp-histogram, read as by --merge. The bits of the first byte choose the options, which the report must
// have been counted with; what is read must be writable in a form that can be read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    amp::HistogramOptions options;
    options.formats = {amp::format("fp16")};
    if ((data[0] & 1) != 0) {
        options.error = true;
        options.block = 32;
        options.policy.rounding = amp::Rounding::up;
        options.scales = {3.5};
    }
    if ((data[0] & 2) != 0) options.recipes = {amp::recipe_choice("te-nvfp4"), amp::recipe_choice("te-mxfp8,column")};
    amp::HistogramFindings findings;
    try {
        findings.tensors = amp::read_histogram_report(amp::fuzz::memory_file(data + 1, size - 1), options).tensors;
    } catch (const amp::FileError&) {
        return 0;
    }
    amp::detail::summarize(findings, {"report.json"}, options);
    std::string text;
    amp::histogram_tool::write_json(findings, options, [&](std::string_view piece) { text += piece; });
    amp::read_histogram_report(amp::fuzz::memory_file(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()),
                               options);
    return 0;
}
