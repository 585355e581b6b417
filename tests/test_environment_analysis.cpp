// Analyses in a process that rounds in another direction, or flushes subnormals.
#include "computations_findings.h"
#include "environments.h"

#include <ampscope/sim/analysis/gate.h>
#include <ampscope/sim/analysis/histogram_log.h>
#include <ampscope/sim/analysis/norms.h>
#include <ampscope/sim/findings/adam_effects.h>
#include <ampscope/sim/findings/loss_scale_replay.h>
#include <ampscope/sim/io/step_log.h>

using namespace amp;
using namespace amp::test;

namespace {

void add_small(std::vector<Computation>& all) {
    all.push_back({"norms", [](int, Bits& results) {
                       Norms norms;
                       norms.add(mixed_floats(1031, false));
                       results << norms.two() << norms.largest();
                   }});
    all.push_back({"recommendations", [](int, Bits& results) {
                       MagnitudeCounter counter(DType::f32);
                       const std::vector<float> x = mixed_floats(4099, false);
                       counter.add(std::as_bytes(std::span(x)));
                       for (const FormatSpec& f : formats)
                           if (f.is_signed) {
                               const Recommendation r =
                                   recommend(counter.statistics().histogram, f, {.limit = 1.0 / 3});
                               results << r.log2_scale << r.lowest_enough << r.highest_safe;
                           }
                   }});
    all.push_back(
        {"replays of scalers", [](int, Bits& results) {
             std::vector<GradientStep> steps;
             for (std::int64_t i = 0; i < 50; ++i)
                 steps.push_back({.step = i, .amax = i % 7 == 0 ? 0.1 : 1e-3, .clean_scale = 1e-40, .magnitudes = {}});
             const Replay r =
                 replay_scaler(scaler_options("torch,growth=1.1,backoff=0.3,interval=2"), steps, format("fp16"));
             results << r.final_scale << r.time;
             for (const ScaleChange& c : r.scales) results << c.step << c.scale;
         }});
    all.push_back({"effects of eps", [](int, Bits& results) {
                       AdamQuestion q;
                       q.options = optimizer("adam").options;
                       q.eps = {1e-8, 1e-40};
                       q.weights = {format("fp32"), format("bf16")};
                       q.states = {format("fp32"), format("bf16"), adam_state("dynamic8:256")};
                       const AdamEffects e = adam_effects(q, {.weight = mixed_floats(4096, false),
                                                              .m = {},
                                                              .v = {},
                                                              .gradients = {mixed_floats(4096, false, 2)},
                                                              .repeats = {3}});
                       results << e.nonzero << e.root.bins << e.rate.bins << e.updated << e.lost;
                       for (const StateEffects& s : e.states)
                           for (const EpsEffects& x : s.eps) results << x.dominated << x.nonfinite << x.ratio.bins;
                   }});
    all.push_back({"logs and gates", [](int, Bits& results) {
                       static const Scratch scratch;
                       static const fs::path csv =
                           write_file(scratch / "log.csv",
                                      "step,loss,amax,found_inf,scale\n0,0.1,1e-40,0,0.3\n1,1e-310,3.3e-5,1,7\n");
                       static const fs::path jsonl = write_file(
                           scratch / "log.jsonl", R"({"step": 0, "loss": 0.1, "amax": 1e-310, "found_inf": false})"
                                                  "\n");
                       for (const fs::path& file : {csv, jsonl})
                           for (const StepMetrics& s : read_step_log(file).steps)
                               results << s.loss << s.scale << s.amax_weight << s.amax_activation;
                       results << parse_gate("fp16@0.3.underflow<0.1%").scale << parse_scale("0.1");
                   }});
}

} // namespace

TEST_CASE("analyses in every environment") {
    std::vector<Computation> all;
    add_analysis(all);
    add_findings(all);
    add_small(all);
    check_in_every_environment(all);
}
