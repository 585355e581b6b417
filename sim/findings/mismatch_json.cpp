// Reads and writes what amp-train --against measured. It may come from anywhere, so everything in it is checked.
#include <ampscope/sim/findings/detail/report_values.h>
#include <ampscope/sim/findings/mismatch.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/json_value.h>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view subject = "training against serving";
constexpr int mismatch_version = 1;

template <class Owner>
using NumberField = std::pair<const char*, double Owner::*>;

constexpr NumberField<TokenMismatch> token_fields[] = {{"token_mult_prob_error", &TokenMismatch::mult_prob_error},
                                                       {"gen_kl_error", &TokenMismatch::kl_serving},
                                                       {"policy_kl_error", &TokenMismatch::kl_training},
                                                       {"js_divergence_error", &TokenMismatch::js_divergence},
                                                       {"sampling_importance_ratio", &TokenMismatch::importance_ratio},
                                                       {"chi2_token", &TokenMismatch::chi2},
                                                       {"largest_logp_difference", &TokenMismatch::largest}};
constexpr NumberField<DistributionMismatch> distribution_fields[] = {
    {"kl_training_serving", &DistributionMismatch::kl_training},
    {"kl_serving_training", &DistributionMismatch::kl_serving},
    {"js_divergence", &DistributionMismatch::js_divergence},
    {"chi2", &DistributionMismatch::chi2},
    {"largest_probability_difference", &DistributionMismatch::largest}};

template <class Owner, std::size_t N>
void write_numbers(Json& json, const NumberField<Owner> (&fields)[N], const Owner& from) {
    for (const auto& [name, field] : fields) json[name] = finite_or_null(from.*field);
}

/// Reads numbers that are finite, or null for what overflowed.
template <class Owner, std::size_t N>
void read_numbers(const Json& json, const NumberField<Owner> (&fields)[N], Owner& to) {
    for (const auto& [name, field] : fields) to.*field = detail::number_at(json, name);
}

std::int64_t batch_at(const Json& json) {
    const std::uint64_t batch = detail::count_at(json, "batch");
    if (batch == 0 || batch > 1U << 31) throw std::invalid_argument(fmt::format("its batch is {}", batch));
    return static_cast<std::int64_t>(batch);
}

DifferingOp op_of(const Json& json) {
    DifferingOp op{.op = json.at("op").get<std::string>(),
                   .tensor = json.at("tensor").get<std::string>(),
                   .relative = detail::number_at(json, "relative"),
                   .differing = detail::count_at(json, "differing"),
                   .elements = detail::count_at(json, "elements")};
    if (op.relative < 0) throw std::invalid_argument("an op has a negative error");
    if (op.differing > op.elements) throw std::invalid_argument("of an op more elements differ than there are");
    return op;
}

Mismatch mismatch_of(const Json& json) {
    Mismatch m{.serving = json.at("serving").get<std::string>(),
               .batch = batch_at(json),
               .tokens = detail::count_at(json, "tokens"),
               .nonfinite = detail::count_at(json, "nonfinite"),
               .training_loss = detail::number_at(json, "training_loss"),
               .serving_loss = detail::number_at(json, "serving_loss")};
    read_numbers(json.at("token"), token_fields, m.token);
    m.token.largest_at = detail::count_at(json.at("token"), "largest_at");
    if (const Json& all = json.at("distribution"); !all.is_null()) {
        read_numbers(all, distribution_fields, m.distribution.emplace());
        m.distribution->other_choice = detail::count_at(all, "other_choice");
        if (m.distribution->other_choice > m.tokens) throw std::invalid_argument("more choices differ than tokens");
    }
    for (const Json& op : json.at("ops")) m.ops.push_back(op_of(op));
    return m;
}

MismatchReport report_of(const Json& json) {
    if (json.value("report", Json()) != subject) throw std::invalid_argument("amp-train --against did not write it");
    if (json.at("schema_version") != mismatch_version)
        throw std::invalid_argument(fmt::format("its schema_version is {}, and this version of ampscope reads {}",
                                                json.at("schema_version").dump().substr(0, 40), mismatch_version));
    MismatchReport report{.network = json.at("network").get<std::string>(),
                          .training = json.at("training").get<std::string>(),
                          .batch = batch_at(json),
                          .servings = {}};
    for (const Json& m : json.at("servings")) report.servings.push_back(mismatch_of(m));
    return report;
}

} // namespace

Json json_of(const Mismatch& m) {
    Json json = {{"serving", m.serving},
                 {"batch", m.batch},
                 {"tokens", m.tokens},
                 {"nonfinite", m.nonfinite},
                 {"training_loss", finite_or_null(m.training_loss)},
                 {"serving_loss", finite_or_null(m.serving_loss)},
                 {"token", Json::object()},
                 {"distribution", nullptr},
                 {"first_op", m.ops.empty() ? Json(nullptr) : Json(m.ops.front().tensor)},
                 {"ops", Json::array()}};
    write_numbers(json["token"], token_fields, m.token);
    json["token"]["largest_at"] = m.token.largest_at;
    if (m.distribution) {
        json["distribution"] = Json::object();
        write_numbers(json["distribution"], distribution_fields, *m.distribution);
        json["distribution"]["other_choice"] = m.distribution->other_choice;
    }
    for (const DifferingOp& op : m.ops)
        json["ops"].push_back({{"op", op.op},
                               {"tensor", op.tensor},
                               {"relative", finite_or_null(op.relative)},
                               {"differing", op.differing},
                               {"elements", op.elements}});
    return json;
}

bool is_mismatch_report(const std::filesystem::path& file) { return begins_with(file, "report", subject); }

MismatchReport read_mismatch_report(const std::filesystem::path& file) {
    const Json json = read_json_object(file);
    return taken(file, "is no report of training against serving", [&] { return report_of(json); });
}

Json json_of(const MismatchReport& report) {
    Json json = {{"report", subject},         {"schema_version", mismatch_version}, {"version", AMPSCOPE_VERSION},
                 {"network", report.network}, {"training", report.training},        {"batch", report.batch},
                 {"servings", Json::array()}};
    for (const Mismatch& m : report.servings) json["servings"].push_back(json_of(m));
    return json;
}

} // namespace amp
