// What amp-crosscheck prints.
#pragma once

#include <ampscope/sim/analysis/recorded_products.h>

#include <filesystem>
#include <string>
#include <vector>

namespace amp::crosscheck_tool {

struct VectorFile {
    std::filesystem::path file;
    std::vector<RecordedComparison> outputs;
};

std::string vectors_table(const std::vector<VectorFile>& files);
std::string vectors_json(const std::vector<VectorFile>& files);

} // namespace amp::crosscheck_tool
