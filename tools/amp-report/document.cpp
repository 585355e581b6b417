#include <ampscope/tools/amp-report/report.h>
#include <ampscope/tools/document/mismatch.h>

#include <ampscope/formats/codec.h>
#include <ampscope/sim/base/text.h>
#include <ampscope/tools/chart/adam_figures.h>
#include <ampscope/tools/document/page.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace amp::report_tool {

namespace {

constexpr std::size_t shown_runs = 12, named_files = 6;

/// The file's name in the run's folder.
std::string name_in(const RecordedRun& run, const SourceFile& file) {
    const std::filesystem::path below = std::filesystem::path(file.name).lexically_relative(run.name);
    return below.empty() || below == "." ? std::filesystem::path(file.name).filename() : below;
}

std::string files_text(const RecordedRun& run) {
    if (run.files.size() > named_files) return fmt::format("{} files", run.files.size());
    std::vector<std::string> names;
    for (const SourceFile& f : run.files) names.push_back(name_in(run, f));
    return fmt::format("{}", fmt::join(names, " "));
}

/// The hash of a run's only file, or of the lines that sha256sum prints of its files.
std::string hash_of(const RecordedRun& run) {
    if (run.files.size() == 1) return run.files.front().sha256;
    std::string lines;
    for (const SourceFile& f : run.files) lines += fmt::format("{}  {}\n", f.sha256, name_in(run, f));
    return run.files.empty() ? "-" : sha256_of(lines);
}

/// Writes the sections of a report.
class Writer {
  public:
    Writer(const Report& report, const ReportOptions& options) : report_(report), options_(options) {
        document_.title = "Precision comparison";
        std::vector<std::string> names;
        for (const ComparisonGroup& g : report.findings.groups) names.push_back(g.name);
        document_.subtitle = fmt::format("{}; {}. Made by ampscope {}.", fmt::join(names, ", "),
                                         plural(report.findings.runs.size(), "recorded run"), AMPSCOPE_VERSION);
    }

    Document write() {
        cards();
        heading("Verdict");
        for (const std::string& sentence : report_.findings.verdict) document_.add(Paragraph{sentence, true});
        section("Each precision against FP32", {report_.findings.precisions});
        const bool known = std::ranges::any_of(report_.findings.groups, [](const ComparisonGroup& group) {
            return std::ranges::any_of(group.effects,
                                       [](const EffectFinding& e) { return e.effect->reported_by.empty(); });
        });
        section(known ? "What is known in the field" : "What is reported", {report_.findings.effects});
        section("Alarms", {report_.findings.alarms});
        trouble();
        for (const ComparisonGroup& group : report_.findings.groups) write(group);
        for (const Report::Against& against : report_.against) write(against);
        std::vector<Block> findings = std::exchange(document_.blocks, {});
        formats_section();
        definitions();
        provenance();
        document_.appendix = std::exchange(document_.blocks, std::move(findings));
        return std::move(document_);
    }

  private:
    void cards() {
        constexpr std::array tones = {Tone::good, Tone::fair, Tone::bad}; // by ShortAnswer::State
        CardBlock block;
        for (const ShortAnswer& a : report_.findings.answers)
            block.cards.push_back({a.question, a.words, a.reason, tones[static_cast<std::size_t>(a.state)]});
        document_.add(std::move(block));
    }

    void heading(const std::string& text, int level = 2) { document_.add(Heading{text, level}); }
    void paragraph(const std::string& text) { document_.add(Paragraph{text}); }

    void trouble() {
        Bullets list{report_.findings.errors};
        for (const RecordedRun& run : report_.findings.runs)
            list.items.insert(list.items.end(), run.warnings.begin(), run.warnings.end());
        for (const ComparisonGroup& group : report_.findings.groups)
            if (group.adam)
                list.items.insert(list.items.end(), group.adam->warnings.begin(), group.adam->warnings.end());
        section("What could not be read, or is missing", std::move(list));
        Bullets remarks;
        for (const RecordedRun& run : report_.findings.runs)
            remarks.items.insert(remarks.items.end(), run.remarks.begin(), run.remarks.end());
        section("What is wrong with the training loop", std::move(remarks));
    }

    void section(const std::string& title, Bullets list) {
        if (list.items.empty()) return;
        constexpr std::size_t most = 40;
        if (const std::size_t all = list.items.size(); all > most) {
            list.items.resize(most);
            list.items.push_back(fmt::format("... and {} more lines like these; --json holds all", all - most));
        }
        heading(title, 3);
        document_.add(std::move(list));
    }

    void write(const Report::Against& against) {
        Document served = amp::document_of(against.report, options_.worst);
        heading(fmt::format("{}: {}", served.title, printable(against.run)));
        paragraph(served.subtitle);
        std::ranges::move(served.blocks, std::back_inserter(document_.blocks));
    }

    void write(const ComparisonGroup& group) {
        const bool trains =
            std::ranges::any_of(group.rows, [](const ComparisonRow& r) { return !r.runs.front()->steps.empty(); });
        heading(group.name);
        if (trains) {
            for (TableBlock& table : comparison_tables(group, options_)) document_.add(std::move(table));
            if (!group.notes.empty()) document_.add(Bullets{group.notes});
            document_.add(cost_table(group, options_));
            document_.add(loss_figure(group));
            document_.add(difference_figure(group, report_.findings.limits));
            document_.add(scale_figure(group));
            heading("Divergence", 3);
            document_.add(stability_table(group, report_.findings.limits));
            document_.add(gradient_figure(group, report_.findings.limits.spikes));
            if (const auto table = departure_table(group)) {
                heading("Where each run first left FP32", 3);
                document_.add(*table);
            }
        }
        if (group.evidence != nullptr) gradients(*group.evidence);
        else paragraph("No gradients were recorded: what formats do to them is not known.");
        adam(group);
        for (const ComparisonRow& row : group.rows)
            if (!row.runs.front()->formats.empty()) scaled_casts(*row.runs.front());
    }

    void gradients(const RecordedRun& run) {
        heading("Gradients", 3);
        const Censoring hidden = run.censoring();
        paragraph(fmt::format(
            "Of {}: {}, {} over all recorded steps; {}.{}", run.name, plural(run.tensors.size(), "tensor"),
            plural(run.magnitudes.count(), "element"),
            run.scale_stated ? "the loss scale is divided out"
                             : "their files state no loss scale, and none is divided out (--recorded-scale)",
            hidden.hides_any()
                ? fmt::format(" What underflows may be more than is shown, as {}.", censoring_text(hidden))
                : ""));
        document_.add(magnitude_figures(run));
        document_.add(rate_figure(run, options_.recommendation));
        document_.add(zeroed_figures(run));
        const NamesBelow names(run.tensors, &TensorRecord::name);
        heading(names.heading("Worst tensors"), 3);
        document_.add(worst_tensor_table(run, names, options_));
        kinds(run);
    }

    /// Where weights or activations were recorded: they and gradients, each in the formats in which they are used.
    void kinds(const RecordedRun& run) {
        if (run.kinds.empty()) return;
        heading("Forward and backward formats", 3);
        paragraph("FP8 has E4M3 for weights and activations and E5M2 for gradients, each tensor under a scale of its "
                  "own; FP16 has no such scales, and a loss scale only moves gradients.");
        for (const KindRecord& kind : run.kinds)
            for (const KindFit& fit : kind.fits) document_.add(Paragraph{fit.advice, true});
        document_.add(fit_table(run, options_.recommendation.limit));
        document_.add(forward_figures(run));
    }

    void adam(const ComparisonGroup& group) {
        if (!group.adam) return;
        heading("Adam: eps and the formats of m and v", 3);
        const AdamFindings& f = *group.adam;
        paragraph(fmt::format("Of {}{}: {}.", f.name, f.step ? fmt::format(", step {}", *f.step) : "",
                              f.is_exact() ? "exact, from the recorded state or gradients"
                                           : "an estimate, which takes gradients to stay between recorded steps"));
        paragraph(f.advice);
        document_.add(FigureBlock{ratio_figure(f), counted_text(f.censoring)});
        document_.add(FigureBlock{sweep_figure(f), ""});
    }

    void scaled_casts(const RecordedRun& run) {
        heading("Scaled casts: " + run.label, 3);
        document_.add(scaled_cast_figures(run));
        document_.add(scaled_tensor_table(run, options_));
    }

    void formats_section() {
        heading("Formats");
        TableBlock table{.caption = "Relative step: the distance from 1 to the next value. Half the smallest "
                                    "subnormal and what lies below it round to zero.",
                         .header = {"format", "bits", "exponent", "fraction", "largest", "smallest normal",
                                    "smallest subnormal", "relative step"},
                         .rows = {}};
        std::vector<FormatSpec> shown = {format("fp32"), format("tf32")};
        for (const FormatSpec& f : usual_specs) shown.push_back(f);
        for (const FormatSpec& f : shown) {
            const auto power = [](int k) { return Cell{fmt::format("2^{}", k), k}; };
            table.rows.push_back({{f.name},
                                  number_cell(f.bits(), 3),
                                  number_cell(f.exponent_bits, 3),
                                  number_cell(f.fraction_bits, 3),
                                  number_cell(decode(f, f.max_code()), 6),
                                  power(f.min_exponent()),
                                  power(f.min_subnormal_exponent()),
                                  power(-f.fraction_bits)});
        }
        document_.add(std::move(table));
    }

    void definitions() {
        heading("Definitions");
        document_.add(Bullets{
            {"Each element x is multiplied by the loss scale exactly, then rounded once to the format, to nearest "
             "even.",
             "Underflow: x is finite and not zero, and becomes zero. Subnormal: it becomes a value below the format's "
             "smallest normal one. Overflow: its rounded magnitude exceeds the largest finite value, whatever is then "
             "stored.",
             "Rates are of the non-zero elements: finite and not zero. Every recorded gradient is taken to be cast; "
             "under autocast those of embeddings and norms stay in FP32, so that a run may bear a larger scale.",
             fmt::format(
                 "Safe window: the loss scales at which no element overflows and less than {} of the non-zero "
                 "ones underflow. The limit is a choice (--limit); at 0.1 % NVIDIA's first example of loss "
                 "scaling recovered all that it called relevant. Recommended: 1 if it is safe, else the largest "
                 "power of two {} below overflow (--margin), room for gradients larger than those recorded.",
                 limit_percent(options_.recommendation.limit),
                 plural(static_cast<std::uint64_t>(options_.recommendation.margin), "binade")),
             "Shades of what a format zeroes change at 0.1, 1, 10, 50 and 90 %: orders of magnitude from the usual "
             "limit on, then half and nearly all. Those of magnitudes by layer, at 0.1, 1, 3, 10 and 20 %, show a "
             "shape and judge nothing.",
             "eps decides a step: sqrt(v_hat), with v as its format holds it, is below eps as that format holds it. "
             "v cannot decay: v is not zero, and v times beta2 rounds to v.",
             fmt::format("Known effects: all intervals of a network hold at once, too, those of final losses and "
                         "those of gradients: each at 1 - {:g} / their number. First gradients are those of step 0, "
                         "where the weights are still FP32's; g is |g - g0| / |g0| from FP32's g0.",
                         options_.limits.alpha),
             "The margin of losses, unless one was asked for (--loss-margin): a straight line is laid through the last "
             "third of the losses that FP32 logs (least squares); what it falls by in a tenth of the run is the "
             "margin, as a mean over seeds. The difference of the means of the last two tenths is the same in the long "
             "run, but 2.5 times as noisy: on the gpt of the standard comparison it was 0.044 with a deviation of "
             "0.018 between seeds, where the line gives 0.038 with 0.006. A margin so noisy would decide by itself "
             "which formats hold. A log of fewer than 30 losses has no such line, and a margin below 1 % of FP32's "
             "final loss would be too strict: in both cases it is that 1 %.",
             fmt::format("Seeds that would tell: planned for {0} power. If the true mean and deviation of the "
                         "differences are those of these runs, the interval of so many seeds lies on one side of the "
                         "margin with {0} probability (by the noncentral t distribution).",
                         limit_percent(planned_power)),
             "Skipped: steps in which a gradient overflowed, so that the loss scaler left the weights alone.",
             "One seed: how much a difference would vary between seeds is not known. Noise is then estimated by the "
             "run itself, from the deviation of its differences to FP32 along the second half of its steps. Those of "
             "neighbouring steps are correlated: n of them tell as much as n / (1 + 2 sum of autocorrelations) "
             "independent ones, the sum up to where two in a row are negative together (Geyer 1992). Student's t with "
             "the degrees of freedom of so many, times the deviation of a mean of those in the last tenth, is the "
             "noise of the run itself; what drifts counts as noise. What other seeds would add, which no single run "
             "shows, is taken from the 16 runs of amp-report's standard comparison: there the difference deviates "
             "between seeds by about 0.6 of its deviation from step to step (0.18 to 1.03, by network and "
             "precision). The square root of the sum of both variances, times t, is the least difference that can be "
             "told from noise. With one seed a format does not hold if the whole interval of that width lies above the "
             "margin. That it holds needs several seeds.",
             "The tensor that grew most: its largest magnitude in the first step of a spike that is recorded, over "
             "that in the recorded step before; the words in parentheses say where. Histograms tell it to a power of "
             "two.",
             "A gradient ten times its level: norms of batches vary about their median by a factor below two (the "
             "deviation of their logarithm is 0.3 to 0.5), so that ten times is five deviations and a false alarm one "
             "step in millions. Ten deviations of a loss leave room for skewed losses of small batches."}});
    }

    void provenance() {
        heading("Provenance");
        document_.add(Bullets{{"This report: " + options_.command}});
        if (!report_.commands.empty()) {
            paragraph("The runs, by these commands in the folder that the names below start from:");
            document_.add(Bullets{report_.commands});
        }
        TableBlock runs{.caption =
                            "As run.json says; steps as logged. The SHA-256 is that of the run's only file, or of "
                            "what sha256sum prints of its files, in this order, in its folder. Those of single "
                            "files are in the JSON report.",
                        .header = {"run", "written by", "optimizer", "files", "SHA-256", "seed", "steps"},
                        .rows = {},
                        .text_columns = 5,
                        .folded = report_.findings.runs.size() > shown_runs};
        for (const RecordedRun& run : report_.findings.runs) {
            const RunFacts& facts = run.facts;
            std::string optimizer = facts.optimizer;
            if (facts.lr) optimizer += fmt::format(", lr {:g}", *facts.lr);
            if (facts.eps) optimizer += fmt::format(", eps {:g}", *facts.eps);
            const std::string tool = facts.tool + " " + facts.version;
            runs.rows.push_back({{run.name},
                                 {tool == " " ? "-" : tool},
                                 {optimizer.empty() ? "-" : optimizer},
                                 {files_text(run)},
                                 {hash_of(run)},
                                 facts.seed ? number_cell(*facts.seed, 17) : no_value(),
                                 number_cell(static_cast<double>(run.steps.size()), 17)});
        }
        document_.add(std::move(runs));
    }

    const Report& report_;
    const ReportOptions& options_;
    Document document_;
};

} // namespace

Document document_of(const Report& report, const ReportOptions& options) { return Writer(report, options).write(); }

} // namespace amp::report_tool
