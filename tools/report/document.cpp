#include <ampscope/tools/report/report.h>

#include <ampscope/formats/codec.h>
#include <ampscope/tools/adam/report.h>
#include <ampscope/tools/chart/text.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace amp {

namespace {

using Json = nlohmann::ordered_json;

Cell none() { return {"-"}; }

Cell number(double x, int digits) { return {fmt::format("{:.{}g}", x, digits), x}; }

Cell share(const Share& s) {
    if (s.whole == 0) return none();
    return {percent(s.part, s.whole), s.rate()};
}

Cell spread(const std::optional<Spread>& s, Tone tone) {
    if (!s) return {"not finite", std::nullopt, tone};
    const std::string mean = fmt::format("{:.4g}", s->mean);
    return {s->count < 2 ? mean : fmt::format("{} ± {:.2g}", mean, s->deviation), s->mean, tone};
}

Tone tone_of(const Row& row) {
    switch (row.standing) {
    case Standing::holds: return Tone::good;
    case Standing::worse:
    case Standing::broken: return Tone::bad;
    default: return Tone::plain;
    }
}

/// Which columns the rows of a group have something for.
struct Columns {
    bool accuracy, validation, underflow, updates, memory, distance, scale;

    explicit Columns(const Group& g)
        : accuracy(any(g, [](const Row& r) { return r.accuracy.has_value(); })),
          validation(any(g, [](const Row& r) { return r.validation.has_value(); })),
          underflow(any(g, [](const Row& r) { return r.underflow.has_value(); })),
          updates(any(g, [](const Row& r) { return r.lost_updates.whole > 0; })),
          memory(any(g, [](const Row& r) { return r.bytes_per_parameter.has_value(); })),
          distance(any(g, [](const Row& r) { return r.distance.has_value(); })),
          scale(any(g, [](const Row& r) { return r.scales_loss || r.skipped > 0; })) {}

  private:
    template <class Has>
    static bool any(const Group& g, const Has& has) {
        return std::ranges::any_of(g.rows, has);
    }
};

std::vector<Cell> cells_of(const Row& row, const Columns& columns, const Group& group, double limit) {
    const bool logged = row.runs.front()->final_loss().has_value();
    std::vector<Cell> cells = {{row.label}};
    cells.push_back(logged ? spread(row.loss, tone_of(row)) : none());
    if (group.reference != nullptr) {
        const bool compared = row.standing == Standing::holds || row.standing == Standing::worse;
        cells.push_back(compared ? Cell{fmt::format("{:+.2g}", row.excess), row.excess} : none());
    }
    if (columns.validation) cells.push_back(row.validation ? spread(row.validation, Tone::plain) : none());
    if (columns.accuracy)
        cells.push_back(row.accuracy ? Cell{percent(row.accuracy->mean), row.accuracy->mean} : none());
    if (columns.scale)
        cells.push_back(row.scales_loss || row.skipped > 0 ? Cell{fmt::format("{:.3g}", row.skipped), row.skipped}
                                                           : none());
    if (columns.underflow) {
        cells.push_back(row.underflow ? share(*row.underflow) : none());
        if (row.underflow && row.underflow->rate() >= limit) cells.back().tone = Tone::fair;
    }
    if (columns.updates) cells.push_back(share(row.lost_updates));
    if (columns.memory) cells.push_back(row.bytes_per_parameter ? number(*row.bytes_per_parameter, 3) : none());
    if (columns.distance) cells.push_back(row.distance ? number(*row.distance, 2) : none());
    return cells;
}

TableBlock comparison_table(const Group& group, double limit) {
    const Columns columns(group);
    TableBlock table{.caption = {}, .header = {"precision", "final loss"}, .rows = {}};
    if (group.reference != nullptr) table.header.emplace_back("over FP32");
    if (columns.validation) table.header.emplace_back("validation");
    if (columns.accuracy) table.header.emplace_back("accuracy");
    if (columns.scale) table.header.emplace_back("skipped");
    if (columns.underflow) table.header.emplace_back("underflow");
    if (columns.updates) table.header.emplace_back("lost updates");
    if (columns.memory) table.header.emplace_back("bytes per parameter");
    if (columns.distance) table.header.emplace_back("off FP32");
    std::size_t seeds = 0;
    for (const Row& row : group.rows) {
        table.rows.push_back(cells_of(row, columns, group, limit));
        seeds = std::max(seeds, row.runs.size());
    }
    table.caption = fmt::format("Final loss: mean of the last tenth of the steps{}.",
                                seeds > 1 ? fmt::format(", and ± its deviation between seeds (up to {})", seeds) : "");
    if (group.reference != nullptr)
        table.caption += fmt::format(" Green: over FP32's of the same seeds by less than {:.2g}; red: by more, or not "
                                     "finite. The bound is {}.",
                                     group.bound, group.bound_basis);
    if (columns.underflow)
        table.caption += fmt::format(" Underflow: of the non-zero gradients that training rounded, those that became "
                                     "zero; yellow from {} on, the limit of the safe window.",
                                     fmt::format("{:g} %", 100 * limit));
    if (columns.updates)
        table.caption += " Lost updates: of weights with a gradient, those that a step left as they were.";
    if (columns.memory) table.caption += " Bytes: weights, gradients and optimizer, without activations.";
    if (columns.distance) table.caption += " Off FP32: |w - w0| / |w0| at the end, of the first seed.";
    return table;
}

std::optional<TableBlock> departure_table(const Group& group) {
    TableBlock table{.caption =
                         "The first tensor, in the order of the ops of a step, that is far from FP32's in the same "
                         "step, infinite, NaN, or a gradient of zeros where FP32's is not. error: |x - y| / |y|, "
                         "gradients unscaled; the bound is that of run.json (departure). Of the first seed.",
                     .header = {"precision", "what", "tensor", "op", "step", "error"},
                     .rows = {},
                     .text_columns = 4};
    for (const Row& row : group.rows) {
        const Json& result = row.runs.front()->result;
        const Json departures = result.is_object() ? result.value("departures", Json()) : Json();
        if (!departures.is_object()) continue;
        for (const auto& [kind, d] : departures.items()) {
            const std::optional<double> step = number_at(d, "/step"), error = number_at(d, "/error");
            if (kind == "error" && !error) continue; // the first inf and NaN tell
            table.rows.push_back({{row.label},
                                  {kind},
                                  {text_at(d, "/tensor")},
                                  {text_at(d, "/op")},
                                  step ? Cell{fmt::format("{:.0f}", *step), *step} : none(),
                                  kind == "error" ? number(*error, 3) : none()});
        }
    }
    return table.rows.empty() ? std::nullopt : std::optional(table);
}

std::string range_text(const MagnitudeHistogram& h) {
    return h.rows.empty() ? "-" : fmt::format("2^{} to 2^{}", h.rows.begin()->first, h.rows.rbegin()->first + 1);
}

TableBlock worst_tensors(const RecordedRun& run, const ReportOptions& options) {
    const std::vector<FormatSpec> shown = {format("fp16"), format("bf16"), format("e4m3"), format("e5m2")};
    const auto zeroed = [](const TensorRecord& t, const FormatSpec& f) {
        return Share{t.magnitudes.classify(f, 0).underflow, t.magnitudes.nonzero()};
    };
    std::vector<const TensorRecord*> tensors;
    for (const TensorRecord& t : run.tensors) tensors.push_back(&t);
    std::ranges::stable_sort(tensors, [&](const TensorRecord* a, const TensorRecord* b) {
        return zeroed(*a, shown.front()).rate() > zeroed(*b, shown.front()).rate();
    });
    TableBlock table{.caption = {}, .header = {"tensor", "non-zero", "magnitudes"}, .rows = {}};
    for (const FormatSpec& f : shown) table.header.emplace_back(f.name);
    const std::size_t rows = options.worst == 0 ? tensors.size() : std::min(options.worst, tensors.size());
    for (std::size_t i = 0; i < rows; ++i) {
        const TensorRecord& t = *tensors[i];
        table.rows.push_back({{t.name},
                              {grouped(t.magnitudes.nonzero()), static_cast<double>(t.magnitudes.nonzero())},
                              {range_text(t.magnitudes)}});
        for (const FormatSpec& f : shown) table.rows.back().push_back(share(zeroed(t, f)));
    }
    table.caption =
        fmt::format("Non-zero elements that become zero unscaled, over all recorded steps; {} of {} tensors, "
                    "by FP16.",
                    rows, tensors.size());
    return table;
}

std::optional<TableBlock> scaled_tensor_table(const RecordedRun& run, const ReportOptions& options) {
    std::vector<const ScaledTensor*> tensors;
    for (const ScaledTensor& t : run.scaled_tensors)
        if (t.saturated + t.underflow > 0) tensors.push_back(&t);
    if (tensors.empty()) return std::nullopt;
    const auto rank = [](const ScaledTensor* t) {
        return std::pair(Share{t->saturated, t->nonzero}.rate(), Share{t->underflow, t->nonzero}.rate());
    };
    std::ranges::stable_sort(tensors, [&](const auto* a, const auto* b) { return rank(a) > rank(b); });
    TableBlock table{.caption = {}, .header = {"cast", "amax", "saturated", "underflow"}, .rows = {}};
    const std::size_t rows = options.worst == 0 ? tensors.size() : std::min(options.worst, tensors.size());
    for (std::size_t i = 0; i < rows; ++i)
        table.rows.push_back({{tensors[i]->name},
                              number(tensors[i]->amax, 3),
                              share({tensors[i]->saturated, tensors[i]->nonzero}),
                              share({tensors[i]->underflow, tensors[i]->nonzero})});
    table.caption = fmt::format("{}: casts that saturate or lose most, of the non-zero elements of all steps; {} of {} "
                                "that lose any.",
                                run.label, rows, tensors.size());
    return table;
}

/// Writes the sections of a report.
class Writer {
  public:
    Writer(const Report& report, const ReportOptions& options) : report_(report), options_(options) {
        document_.title = "Precision comparison";
        std::vector<std::string> names;
        for (const Group& g : report.groups) names.push_back(g.name);
        document_.subtitle = fmt::format("{}; {}. Made by ampscope {}.", fmt::join(names, ", "),
                                         plural(report.runs.size(), "recorded run"), AMPSCOPE_VERSION);
    }

    Document write() {
        heading("Verdict");
        for (const std::string& sentence : verdict(report_.groups, options_.recommendation))
            document_.blocks.emplace_back(Paragraph{sentence, true});
        trouble();
        for (const Group& group : report_.groups) write(group);
        formats_section();
        definitions();
        provenance();
        return std::move(document_);
    }

  private:
    void heading(const std::string& text, int level = 2) { document_.blocks.emplace_back(Heading{text, level}); }
    void paragraph(const std::string& text) { document_.blocks.emplace_back(Paragraph{text}); }
    template <class Blocks>
    void add(const Blocks& blocks) {
        for (const auto& block : blocks) document_.blocks.emplace_back(block);
    }
    template <class Part>
    void add(const std::optional<Part>& part) {
        if (part) document_.blocks.emplace_back(*part);
    }

    void trouble() {
        Bullets list{report_.errors};
        for (const RecordedRun& run : report_.runs)
            list.items.insert(list.items.end(), run.warnings.begin(), run.warnings.end());
        for (const Group& group : report_.groups)
            if (group.adam)
                list.items.insert(list.items.end(), group.adam->warnings.begin(), group.adam->warnings.end());
        if (list.items.empty()) return;
        heading("What could not be read, or is missing", 3);
        document_.blocks.emplace_back(std::move(list));
    }

    void write(const Group& group) {
        const bool trains =
            std::ranges::any_of(group.rows, [](const Row& r) { return !r.runs.front()->steps.empty(); });
        heading(group.name);
        if (trains) {
            document_.blocks.emplace_back(comparison_table(group, options_.recommendation.limit));
            if (!group.notes.empty()) document_.blocks.emplace_back(Bullets{group.notes});
            add(loss_figure(group));
            add(scale_figure(group));
            if (const auto table = departure_table(group)) {
                heading("Where each run first left FP32", 3);
                document_.blocks.emplace_back(*table);
            }
        }
        if (group.evidence != nullptr) gradients(*group.evidence);
        else paragraph("No gradients were recorded: what formats do to them is not known.");
        adam(group);
        for (const Row& row : group.rows)
            if (!row.runs.front()->formats.empty()) scaled_casts(*row.runs.front());
    }

    void gradients(const RecordedRun& run) {
        heading("Gradients", 3);
        std::uint64_t elements = 0;
        for (const TensorRecord& t : run.tensors) elements += t.magnitudes.count();
        paragraph(fmt::format("Of {}: {}, {} over all recorded steps; the loss scale is divided out.{}", run.name,
                              plural(run.tensors.size(), "tensor"), plural(elements, "element"),
                              run.flushed() ? " Some were recorded in a format of less range than FP32, which had lost "
                                              "small ones: what underflows is more than is shown."
                                            : ""));
        add(magnitude_figures(run));
        document_.blocks.emplace_back(rate_figure(run, options_.recommendation));
        add(zeroed_figures(run));
        heading("Worst tensors", 3);
        document_.blocks.emplace_back(worst_tensors(run, options_));
    }

    void adam(const Group& group) {
        if (!group.adam) return;
        heading("Adam: eps and the formats of m and v", 3);
        const AdamFindings& f = *group.adam;
        const bool exact = f.basis == AdamBasis::recorded || f.basis == AdamBasis::contiguous;
        paragraph(fmt::format("Of {}{}: {}.", f.name, f.step ? fmt::format(", step {}", *f.step) : "",
                              exact ? "exact, from the recorded state or gradients"
                                    : "an estimate, which takes gradients to stay between recorded steps"));
        paragraph(advice(f));
        document_.blocks.emplace_back(FigureBlock{ratio_figure(f), ""});
        document_.blocks.emplace_back(FigureBlock{sweep_figure(f), ""});
    }

    void scaled_casts(const RecordedRun& run) {
        heading("Scaled casts: " + run.label, 3);
        add(scaled_cast_figures(run));
        add(scaled_tensor_table(run, options_));
    }

    void formats_section() {
        heading("Formats");
        TableBlock table{.caption = "Relative step: the distance from 1 to the next value. Below half the smallest "
                                    "subnormal a value rounds to zero.",
                         .header = {"format", "bits", "exponent", "fraction", "largest", "smallest normal",
                                    "smallest subnormal", "relative step"},
                         .rows = {}};
        for (const char* name : {"fp32", "tf32", "fp16", "bf16", "e5m2", "e4m3"}) {
            const FormatSpec f = format(name);
            const auto power = [](int k) { return Cell{fmt::format("2^{}", k), k}; };
            table.rows.push_back({{f.name},
                                  number(f.bits(), 3),
                                  number(f.exponent_bits, 3),
                                  number(f.fraction_bits, 3),
                                  number(decode(f, f.max_code()), 6),
                                  power(f.min_exponent()),
                                  power(f.min_subnormal_exponent()),
                                  power(-f.fraction_bits)});
        }
        document_.blocks.emplace_back(std::move(table));
    }

    void definitions() {
        heading("Definitions");
        document_.blocks.emplace_back(Bullets{
            {"Each element x is multiplied by the loss scale exactly, then rounded once to the format, to nearest "
             "even.",
             "Underflow: x is finite and not zero, and becomes zero. Subnormal: it becomes a value below the format's "
             "smallest normal one. Overflow: its rounded magnitude exceeds the largest finite value, whatever is then "
             "stored.",
             "Rates are of the non-zero elements: finite and not zero.",
             fmt::format(
                 "Safe window: the loss scales at which no element overflows and less than {} of the non-zero "
                 "ones underflow. The limit is a choice (--limit); at 0.1 % NVIDIA's first example of loss "
                 "scaling recovered all that it called relevant. Recommended: 1 if it is safe, else the largest "
                 "power of two {} below overflow (--margin), room for gradients larger than those recorded.",
                 fmt::format("{:g} %", 100 * options_.recommendation.limit),
                 plural(static_cast<std::uint64_t>(options_.recommendation.margin), "binade")),
             "Shades of the heat maps change at 0.1, 1, 10, 50 and 90 %: orders of magnitude, then half and nearly "
             "all.",
             "eps decides a step: sqrt(v_hat), with v as its format holds it, is below eps as that format holds it. "
             "v cannot decay: v is not zero, and v times beta2 rounds to v.",
             "Skipped: steps in which a gradient overflowed, so that the loss scaler left the weights alone."}});
    }

    void provenance() {
        heading("Provenance");
        document_.blocks.emplace_back(Bullets{{"This report: " + options_.command}});
        if (!report_.commands.empty()) {
            paragraph("The runs, each command from the folder that the names below start from:");
            document_.blocks.emplace_back(Bullets{report_.commands});
        }
        TableBlock runs{.caption = "As run.json says; steps as logged.",
                        .header = {"run", "written by", "optimizer", "seed", "steps"},
                        .rows = {},
                        .text_columns = 3};
        TableBlock files{.caption = "SHA-256, as sha256sum prints it.",
                         .header = {"file", "SHA-256", "bytes"},
                         .rows = {},
                         .text_columns = 2,
                         .folded = true};
        for (const RecordedRun& run : report_.runs) {
            const Json& c = run.configuration;
            const std::optional<double> seed = number_at(c, "/seed"), lr = number_at(c, "/optimizer/lr"),
                                        eps = number_at(c, "/optimizer/eps");
            std::string optimizer = text_at(c, "/optimizer/kind");
            if (lr) optimizer += fmt::format(", lr {:g}", *lr);
            if (eps) optimizer += fmt::format(", eps {:g}", *eps);
            const std::string tool = text_at(c, "/tool") + " " + text_at(c, "/version");
            runs.rows.push_back({{run.name},
                                 {tool == " " ? "-" : tool},
                                 {optimizer.empty() ? "-" : optimizer},
                                 seed ? number(*seed, 17) : none(),
                                 number(static_cast<double>(run.steps.size()), 17)});
            for (const SourceFile& f : run.files)
                if (f.bytes > 0)
                    files.rows.push_back({{f.name}, {f.sha256}, {grouped(f.bytes), static_cast<double>(f.bytes)}});
        }
        document_.blocks.emplace_back(std::move(runs));
        document_.blocks.emplace_back(std::move(files));
    }

    const Report& report_;
    const ReportOptions& options_;
    Document document_;
};

} // namespace

Document document_of(const Report& report, const ReportOptions& options) { return Writer(report, options).write(); }

} // namespace amp
