// What the writer and the reader of JSON reports share.
#pragma once

#include <ampscope/tools/amp-histogram/document.h>

#include <nlohmann/json.hpp>

namespace amp::histogram_tool {

using Json = nlohmann::ordered_json;

inline constexpr int schema_version = 1;

/// All that a report says of a tensor.
Json tensor_json(const Entry& entry, const HistogramOptions& options);

/// What decides the counts, so that reports are merged only where they were counted alike.
Json counting_options(const HistogramOptions& options);

} // namespace amp::histogram_tool
