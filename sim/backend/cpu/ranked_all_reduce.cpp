#include <ampscope/sim/backend/cpu/ranked_all_reduce.h>

#include <ampscope/formats/block.h>
#include <ampscope/sim/backend/cpu/detail/reduce_message.h>
#include <ampscope/sim/backend/cpu/detail/transport.h>

#include <algorithm>
#include <map>

namespace amp {

namespace {

using namespace kernels;

/// One replica's memory, and what it does with messages.
class Replica {
  public:
    Replica(const op::AllReduce& op, const Transport& transport, std::vector<float> numbers, int rank)
        : schedule_(op.schedule()), how_(chunk_reduction(op, transport, schedule_)), numbers_(std::move(numbers)),
          rank_(rank) {}

    template <class Send>
    std::vector<float> run(const Send& exchange) {
        for (int s = 0; s < schedule_.steps(); ++s) {
            if (s == schedule_.reducing_steps()) add_kept();
            const std::vector<Transfer> all = schedule_.step(s);
            const auto sent = std::ranges::find(all, rank_, &Transfer::from),
                       got = std::ranges::find(all, rank_, &Transfer::to);
            Exchange e;
            std::vector<std::byte> bytes;
            if (sent != all.end()) {
                bytes = message(*sent, s < schedule_.reducing_steps());
                e.to = sent->to;
                e.bytes = bytes;
            }
            if (got != all.end()) e.from = got->from;
            if (!e.to && !e.from) continue;
            const std::vector<std::byte> received = exchange(e);
            if (got != all.end()) receive(*got, received);
        }
        if (schedule_.steps() == schedule_.reducing_steps()) add_kept();
        return std::move(numbers_);
    }

  private:
    [[nodiscard]] std::span<float> chunk(int c) {
        const ElementRange range = schedule_.chunk(c, std::ssize(numbers_));
        return std::span(numbers_).subspan(static_cast<std::size_t>(range.begin),
                                           static_cast<std::size_t>(range.count()));
    }
    /// How a chunk travels before, or after, it has been summed.
    [[nodiscard]] MessageFormat format(bool reduces) const {
        return {how_.transport.format, reduces ? how_.casts : how_.casts_result, how_.blocks};
    }
    static void append(std::vector<std::byte>& bytes, const std::vector<std::byte>& more) {
        bytes.insert(bytes.end(), more.begin(), more.end());
    }
    std::vector<std::byte> message(const Transfer& t, bool reduces) {
        std::vector<std::byte> bytes;
        for (int c = t.chunk; c < t.chunk + t.chunks; ++c) {
            if (reduces) { // what is kept is not cast
                std::vector<float> numbers(chunk(c).begin(), chunk(c).end());
                append(bytes, pack_message(format(true), numbers));
            } else { // who has the sum reads what the others read, and all pass on the same bytes
                if (!sums_.contains(c)) sums_[c] = pack_message(format(false), chunk(c));
                append(bytes, sums_[c]);
            }
        }
        return bytes;
    }
    void receive(const Transfer& t, std::span<const std::byte> bytes) {
        for (int c = t.chunk; c < t.chunk + t.chunks; ++c) {
            const std::span<float> own = chunk(c);
            std::vector<float> numbers(own.size());
            const std::size_t read = unpack_message(format(t.receive != Receive::store), bytes, numbers);
            switch (t.receive) {
            case Receive::add: cpu::add(how_.transport, own, numbers); break;
            case Receive::keep: kept_[c][t.from] = std::move(numbers); break;
            case Receive::store:
                std::ranges::copy(numbers, own.begin());
                sums_[c].assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(read));
                break;
            }
            bytes = bytes.subspan(read);
        }
    }
    /// Adds chunks of which this replica has kept those of all.
    void add_kept() {
        for (auto& [c, of] : kept_) {
            const std::span<float> own = chunk(c);
            of[rank_].assign(own.begin(), own.end());
            if (how_.casts) cast_message(how_.blocks, of[rank_].data(), std::ssize(own));
            std::vector<float> together;
            for (const auto& [rank, numbers] : of) together.insert(together.end(), numbers.begin(), numbers.end());
            for (std::size_t i = 0; i < own.size(); ++i)
                own[i] =
                    sum_at_once(how_.transport, how_.sum, together.data() + i, std::ssize(own), schedule_.replicas());
        }
        kept_.clear();
    }

    Schedule schedule_;
    ChunkReduction how_;
    std::vector<float> numbers_;
    int rank_;
    std::map<int, std::map<int, std::vector<float>>> kept_; ///< by chunk: by replica
    std::map<int, std::vector<std::byte>> sums_;            ///< by chunk: as it is sent once it is summed
};

} // namespace

std::vector<float> ranked_all_reduce(const op::AllReduce& op, std::vector<float> own, int replica,
                                     const std::function<float(float amax)>& share_amax,
                                     const std::function<std::vector<std::byte>(const Exchange&)>& exchange) {
    const float amax = op.scaled ? share_amax(largest_magnitude(own, Magnitudes::all)) : 0;
    const Transport transport = Transport::of(op, amax);
    cpu::send(transport, own);
    std::vector<float> mean = Replica(op, transport, std::move(own), replica).run(exchange);
    cpu::receive(transport, mean);
    return mean;
}

} // namespace amp
