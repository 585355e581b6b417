// The reports that programs read: JSON and CSV.
#pragma once

#include <ampscope/tools/amp-histogram/entry.h>
#include <ampscope/tools/output.h>

#include <string>
#include <vector>

namespace amp::histogram_tool {

/// The outcome of one gate on the total.
struct GateResult {
    Gate gate;
    double part = 0;         ///< an expectation under stochastic rounding, else an integer
    std::uint64_t whole = 0; ///< the denominator, or 0 where the gate counts elements
    bool holds = false;

    /// A share of no elements; such a gate does not hold.
    [[nodiscard]] bool empty() const { return gate.denominator != Denominator::none && whole == 0; }
};

/// Everything a run found.
struct Findings {
    std::vector<Entry> tensors;
    std::vector<Entry> groups; ///< as --by says; empty for --by tensor
    Entry total;
    std::vector<GateResult> gates;
    std::vector<std::string> errors, warnings;
};

/// The definitions printed beside the numbers.
std::vector<std::pair<std::string, std::string>> definitions_of(const HistogramOptions& options);

/// Schema version 1. No time, no host: the same findings give the same bytes.
void write_json(const Findings& findings, const HistogramOptions& options, const TextSink& sink);

/// Long form, RFC 4180: file, tensor, step, kind, format, scale, class, count. Rows of nan, inf and zero have neither
/// format nor scale; they and the four classes of one format at one scale sum to the elements of the tensor.
std::string csv_document(const Findings& findings, const HistogramOptions& options);

/// The tensors of a report written by write_json() with the same counting options. Throws FileError.
std::vector<Entry> read_report(const std::filesystem::path& path, const HistogramOptions& options);

} // namespace amp::histogram_tool
