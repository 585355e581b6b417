// What decoders of tokens have in common: layers, heads, causal attention and the residual stream.
//
// What linear layers read is watched, since that is what FP8 recipes cast, and so is what leaves a layer.
#pragma once

#include <ampscope/sim/program/models/networks.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace amp {

struct Decoder {
    static constexpr Init small{Init::Kind::normal, 0.02};

    Graph& g;
    const ModelOptions& options;
    std::int64_t batch, tokens; // B, T
    std::vector<TensorId>& kv_cache;

    /// Initial values of layers that add to the residual stream: smaller, the more such layers there are.
    [[nodiscard]] Init residual() const {
        return {Init::Kind::normal, small.value / std::sqrt(2.0 * static_cast<double>(options.depth))};
    }

    TensorId linear_layer(std::string_view name, TensorId x, std::int64_t outputs, const Init& init, bool biased) const;
    /// A layer that reads what others read, too.
    struct Projection {
        std::string_view name;
        std::int64_t outputs;
        bool biased = false;
    };
    /// The results of up to three such layers. With options.fused_projections they are one layer `name`, which has a
    /// bias if one of them has, and whose result is parted.
    [[nodiscard]] std::array<TensorId, 3> projections(std::string_view name, TensorId x,
                                                      std::initializer_list<Projection> of) const;
    /// A layer or RMS norm, as options.norm has it.
    TensorId norm(std::string_view name, TensorId x) const;
    /// The layer `head`, of the table of tokens if options.tied has it, else of a weight and, if `biased`, a bias.
    TensorId head(TensorId x, TensorId table, std::int64_t classes, bool biased) const;
    /// B x T x (heads * D) -> B x heads x T x D.
    [[nodiscard]] TensorId heads_of(TensorId x, std::int64_t heads) const;
    /// Keys or values in the format in which a server keeps them.
    [[nodiscard]] TensorId cached(TensorId x) const;
    /// Causal attention, plain or fused, as options.attention has it: q is B x heads x T x D; k and v have as many
    /// heads, or a divisor of that number, and then serve as many consecutive heads of q (grouped-query attention, J.
    /// Ainslie et al. 2023). If plain, the queries of a group are the rows of one product, so that a gradient of k or v
    /// is one sum over all of them. The result is B x T x (heads * D).
    [[nodiscard]] TensorId mixed(TensorId q, TensorId k, TensorId v) const;
    /// Adds `attention` and `mlp`, each of the normed stream, to the residual stream x.
    template <class Attention, class Mlp>
    [[nodiscard]] TensorId block(std::int64_t number, TensorId x, const Attention& attention, const Mlp& mlp) const {
        const Graph::Scope scope = g.scope("h." + std::to_string(number));
        x = add_layer(x, "ln1", "attn", attention);
        x = add_layer(x, "ln2", "mlp", mlp);
        g.watch(x, "residual", false); // a sum hands its gradient on to what is added, which is watched
        return x;
    }

  private:
    /// As products, scaled q first, and softmax.
    [[nodiscard]] TensorId plain_attention(TensorId q, TensorId k, TensorId v, double factor) const;
    template <class Layer>
    [[nodiscard]] TensorId add_layer(TensorId x, std::string_view norm_name, std::string_view name,
                                     const Layer& layer) const {
        TensorId y = norm(norm_name, x);
        g.watch(y, norm_name, false);
        {
            const Graph::Scope scope = g.scope(name);
            y = layer(y);
        }
        g.watch(y, name);
        return op::add(g, x, y);
    }
};

/// Checks that the data are tokens and that heads divide the width. Throws std::invalid_argument "[model] ...".
void check_decoder(std::string_view model, const ModelOptions& options, const Dataset& data);

} // namespace amp
