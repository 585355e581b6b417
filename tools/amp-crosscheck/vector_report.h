// What amp-crosscheck prints.
#pragma once

#include <ampscope/sim/analysis/conformance/case_file.h>
#include <ampscope/sim/analysis/recorded_products.h>
#include <ampscope/tools/document/document.h>

#include <filesystem>
#include <string>
#include <vector>

namespace amp::crosscheck_tool {

struct VectorFile {
    std::filesystem::path file;
    std::vector<RecordedComparison> outputs;
};

/// A row for each output that was recorded, and the first mismatches.
Document document_of(const std::vector<VectorFile>& files);
std::string vectors_json(const std::vector<VectorFile>& files);

/// A file that amp-format wrote.
struct CheckedCases {
    std::filesystem::path path;
    conformance::CaseFile file;
    conformance::CaseCheck check;
};

/// A row for each file, and the first wrong lines.
Document document_of(const std::vector<CheckedCases>& files);
std::string cases_json(const std::vector<CheckedCases>& files);

} // namespace amp::crosscheck_tool
