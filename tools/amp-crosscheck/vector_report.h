// What amp-crosscheck prints.
#pragma once

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

} // namespace amp::crosscheck_tool
