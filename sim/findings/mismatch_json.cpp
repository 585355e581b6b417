// Reads and writes what amp-train --against measured. It may come from anywhere: shapes, signs and counts are checked.
#include <ampscope/sim/findings/detail/report_values.h>
#include <ampscope/sim/findings/mismatch.h>
#include <ampscope/sim/io/json_reader.h>
#include <ampscope/sim/io/json_value.h>

#include <fmt/format.h>

#include <limits>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view subject = "training against serving";
constexpr int mismatch_version = 1;

template <class Owner>
struct NumberField {
    const char* name;
    double Owner::*field;
    double least; ///< the least that it can be
};
constexpr NumberField<TokenMismatch> token_fields[] = {
    {"token_mult_prob_error", &TokenMismatch::mult_prob_error, 1},
    {"gen_kl_error", &TokenMismatch::kl_serving, 0},
    {"policy_kl_error", &TokenMismatch::kl_training, 0},
    {"js_divergence_error", &TokenMismatch::js_divergence, 0},
    {"sampling_importance_ratio", &TokenMismatch::importance_ratio, 0},
    {"chi2_token", &TokenMismatch::chi2, -1},
    {"largest_logp_difference", &TokenMismatch::largest, 0}};
constexpr NumberField<DistributionMismatch> distribution_fields[] = {
    {"kl_training_serving", &DistributionMismatch::kl_training, 0},
    {"kl_serving_training", &DistributionMismatch::kl_serving, 0},
    {"js_divergence", &DistributionMismatch::js_divergence, 0},
    {"chi2", &DistributionMismatch::chi2, 0},
    {"largest_probability_difference", &DistributionMismatch::largest, 0}};

template <class Owner, std::size_t N>
void write_numbers(Json& json, const NumberField<Owner> (&fields)[N], const Owner& from) {
    for (const auto& f : fields) json[f.name] = finite_or_null(from.*f.field);
}

/// Reads numbers that are finite; null is what overflowed, or of no token at all.
template <class Owner, std::size_t N>
void read_numbers(const Json& json, const NumberField<Owner> (&fields)[N], Owner& to, double null) {
    for (const auto& f : fields) {
        const double x = to.*f.field = detail::number_at(json, f.name, null);
        if (x < f.least) throw std::invalid_argument(fmt::format("its {} is {}", f.name, x));
    }
}

const Json& array_at(const Json& json, const char* key) {
    const Json& array = json.at(key);
    if (!array.is_array()) throw std::invalid_argument(fmt::format("its {} are no list", key));
    return array;
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
               .nonfinite = detail::count_at(json, "nonfinite")};
    const double null =
        m.tokens == 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    m.training_loss = detail::number_at(json, "training_loss", null);
    m.serving_loss = detail::number_at(json, "serving_loss", null);
    read_numbers(json.at("token"), token_fields, m.token, null);
    m.token.largest_at = detail::count_at(json.at("token"), "largest_at");
    if (m.token.largest_at > m.tokens + m.nonfinite) throw std::invalid_argument("its largest_at is beyond all tokens");
    if (const Json& all = json.at("distribution"); !all.is_null()) {
        read_numbers(all, distribution_fields, m.distribution.emplace(), null);
        m.distribution->other_choice = detail::count_at(all, "other_choice");
        if (m.distribution->other_choice > m.tokens) throw std::invalid_argument("more choices differ than tokens");
    }
    for (const Json& op : array_at(json, "ops")) m.ops.push_back(op_of(op));
    return m;
}

MismatchReport report_of(const Json& json) {
    if (json.value("report", Json()) != subject) throw std::invalid_argument("amp-train --against did not write it");
    if (json.at("schema_version") != mismatch_version)
        throw std::invalid_argument(fmt::format("its schema_version is {}, and this version of ampscope reads {}",
                                                json.at("schema_version").dump().substr(0, 40), mismatch_version));
    MismatchReport report{.network = json.at("network").get<std::string>(),
                          .trained_in = json.at("trained_in").get<std::string>(),
                          .training = json.at("training").get<std::string>(),
                          .batch = batch_at(json),
                          .servings = {}};
    if (!json.at("steps").is_null()) report.steps = static_cast<std::int64_t>(detail::count_at(json, "steps"));
    for (const Json& m : array_at(json, "servings")) report.servings.push_back(mismatch_of(m));
    if (report.servings.empty()) throw std::invalid_argument("it has no servings");
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
    Json json = {{"report", subject},
                 {"schema_version", mismatch_version},
                 {"version", AMPSCOPE_VERSION},
                 {"network", report.network},
                 {"steps", or_null(report.steps)},
                 {"trained_in", report.trained_in},
                 {"training", report.training},
                 {"batch", report.batch},
                 {"servings", Json::array()}};
    for (const Mismatch& m : report.servings) json["servings"].push_back(json_of(m));
    return json;
}

} // namespace amp
