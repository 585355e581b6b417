// What adding up replicas' gradients costs: the report of amp-report --collectives.
#pragma once

#include <ampscope/sim/findings/collective_error.h>
#include <ampscope/tools/document/document.h>

#include <nlohmann/json_fwd.hpp>

namespace amp::report_tool {

/// `command`: as it was typed.
Document document_of(const CollectiveErrorFindings& findings, const std::string& command);

nlohmann::ordered_json json_of(const CollectiveErrorFindings& findings);

} // namespace amp::report_tool
