// Computations of sim/findings on tensors in files, one of them so large that threads share it.
#pragma once

#include "computations_analysis.h"

#include <ampscope/sim/findings/adam.h>
#include <ampscope/sim/findings/diff.h>
#include <ampscope/sim/findings/loss_scale.h>

namespace amp {

inline void add_bits(test::Bits& bits, const BinadeCounts& c) { bits << c.bins << c.zero << c.infinite; }
inline void add_bits(test::Bits& bits, const EpsEffects& e) { bits << e.dominated << e.nonfinite << e.ratio; }
inline void add_bits(test::Bits& bits, const StateEffects& s) {
    bits << s.held << s.m_underflow << s.v_underflow << s.v_stuck << s.stretch << s.eps;
}
inline void add_bits(test::Bits& bits, const AdamEffects& e) {
    bits << e.elements << e.nonzero << e.root << e.rate << e.states << e.updated << e.lost;
}
inline void add_bits(test::Bits& bits, const ScalerReplay& s) {
    bits << s.name << s.replay.skips << s.replay.final_scale << s.replay.underflow << s.replay.time << s.lost();
}

} // namespace amp

namespace amp::test {

inline void add_findings(std::vector<Computation>& all) {
    static const Tensors a, b("b.safetensors", 2);
    const auto add = [&](const std::string& name, const auto& run) { all.push_back({name, run, true}); };
    add("adam_findings", [](int threads, Bits& results) {
        AdamOptions options = standard_adam_options();
        options.eps = {1e-8, 1e-40};
        options.assumed_steps = 2;
        options.threads = threads;
        const AdamFindings f = adam_findings(a.file().path(), options);
        results << f.total << f.advice;
        for (const AdamTensor& t : f.tensors) results << t.effects << t.muted_from;
    });
    add("loss_scale_findings", [](int threads, Bits& results) {
        LossScaleOptions options;
        options.scalers = {named_scaler("torch,growth=1.1,backoff=0.3"), named_scaler("constant,init=3")};
        options.threads = threads;
        const LossScaleFindings f = loss_scale_findings(a.file().path(), options);
        results << f.replays << f.recommendation.highest_safe << f.advice;
        for (const GradientStep& s : f.log.steps) results << s.magnitudes << s.amax << s.largest;
    });
    add("diff_findings", [](int threads, Bits& results) {
        DiffOptions options;
        options.a_scale = 3;
        options.threads = threads;
        const DiffFindings f = diff_findings(a.file().path(), b.file().path(), options);
        for (const PairedTensor& p : f.pairs) results << p.name << p.diff;
        results << f.total;
    });
}

} // namespace amp::test
