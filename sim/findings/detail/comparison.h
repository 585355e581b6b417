// The parts of a comparison.
#pragma once

#include <ampscope/sim/findings/comparison.h>

namespace amp::detail {

/// Removes runs that occur twice: a folder named twice or together with a folder above it, its copy, or a copy from an
/// earlier time. Two runs are the same if their configurations agree in all that influences training (other than the
/// seed: a copy is no second seed, whatever its configuration says) and the log of one has all steps of the other with
/// the same values; without logs, if the bytes of their gradients are equal. The one with more steps stays; among
/// equals one with a result, then the one with more gradients. It gets a warning that names the others. Returns these
/// warnings.
std::vector<std::string> drop_repeats(std::vector<RecordedRun>& runs);

/// The configuration without the seed and the program that ran it: equal for runs that differ only in the seed.
std::string configuration_key(const RecordedRun& run);
std::optional<double> seed_of(const RecordedRun& run);
bool is_same(const std::optional<double>& a, const std::optional<double>& b); ///< NaN equals NaN

/// What run.json says of the training itself: nothing of the seed, the program that ran it and what it recorded, and
/// nothing under the keys `without`.
nlohmann::ordered_json training_of(const RecordedRun& run, std::initializer_list<const char*> without = {});

/// Chooses a group's reference and margin, and judges every row and known effect.
void judge(ComparisonGroup& group, const ComparisonLimits& limits);

/// Finds the spikes of all runs of a group, and the tensors that grew.
void find_instabilities(ComparisonGroup& group, const SpikeLimits& limits, int threads);

/// Whether training was stable, in a sentence; empty if no run tells. And the alarms of each row.
std::string about_stability(const std::vector<ComparisonGroup>& groups, const SpikeLimits& limits);
std::vector<std::string> alarms_of(const std::vector<ComparisonGroup>& groups, const SpikeLimits& limits);

/// Joins words: "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& words);

/// The row of the precision that these runs advise, of the first group that has one; null if none is known to hold.
const ComparisonRow* advised_row(const std::vector<ComparisonGroup>& groups);

/// Which format these runs advise, in a sentence.
std::string about_format(const std::vector<ComparisonGroup>& groups);

/// The same in a few words.
ShortAnswer format_answer(const std::vector<ComparisonGroup>& groups);

/// The alarms in a few words; none if there are none.
std::optional<ShortAnswer> stability_answer(const std::vector<ComparisonGroup>& groups, const SpikeLimits& limits);

/// Writes ComparisonFindings::answers and verdict.
void add_verdict(ComparisonFindings& findings, const ComparisonOptions& options);
/// Write ComparisonFindings::precisions and effects.
std::vector<std::string> precision_sentences(const std::vector<ComparisonGroup>& groups);
std::vector<std::string> effect_sentences(const std::vector<ComparisonGroup>& groups);

} // namespace amp::detail
