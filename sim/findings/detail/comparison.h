// The parts of a comparison.
#pragma once

#include <ampscope/sim/findings/comparison.h>

namespace amp::detail {

/// Takes out runs that come twice: a folder that is named twice, or beside one that it is in, its copy, or a copy of an
/// earlier time. Two runs are the same if their configurations differ in nothing that trains otherwise (the seed aside,
/// since a copy proves nothing whatever it says) and the log of one has all steps of the other, and tells the same of
/// them; without a log, if the bytes of their gradients are the same. The one with more steps stays, of equal ones that
/// with a result, then that with more gradients, and gets a warning that names the others. Returns these warnings.
std::vector<std::string> drop_repeats(std::vector<RecordedRun>& runs);

/// What a run was configured with, but for the seed and who ran it: equal for runs that differ in the seed only.
std::string configuration_key(const RecordedRun& run);
std::optional<double> seed_of(const RecordedRun& run);
bool is_same(const std::optional<double>& a, const std::optional<double>& b); ///< NaN is NaN

/// A configuration without these keys.
nlohmann::ordered_json without(nlohmann::ordered_json configuration, std::initializer_list<const char*> keys);

/// ComparisonFindings::verdict.
std::vector<std::string> verdict(const std::vector<ComparisonGroup>& groups, const RecommendationOptions& options);

} // namespace amp::detail
