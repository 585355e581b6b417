#include <ampscope/sim/train/ranked_all_reduce.h>

#include <ampscope/formats/batch.h>
#include <ampscope/sim/backend/kernels/all_reduce.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <map>

namespace amp {

namespace {

using namespace kernels;

/// Appends numbers of a format as its codes, little-endian.
template <class Code>
void append_codes(const FormatSpec& format, std::span<const float> x, std::vector<std::byte>& bytes) {
    std::vector<Code> codes(x.size());
    encode(format, x, std::span(codes));
    const std::span<const std::byte> raw = std::as_bytes(std::span<const Code>(codes));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
}

template <class Code>
std::vector<float> numbers_of(const FormatSpec& format, std::span<const std::byte> bytes) {
    std::vector<Code> codes(bytes.size() / sizeof(Code));
    if (!codes.empty()) std::memcpy(codes.data(), bytes.data(), codes.size() * sizeof(Code));
    std::vector<float> x(codes.size());
    decode(format, std::span<const Code>(codes), std::span(x));
    return x;
}

/// One replica's memory, and what it does with messages.
class Replica {
  public:
    Replica(const op::AllReduce& op, const Transport& transport, std::vector<float> numbers, int rank)
        : schedule_(op.schedule()), how_(chunk_reduction(op, transport, schedule_)),
          sent_as_(how_.casts ? fp32_format : op.transport), numbers_(std::move(numbers)), rank_(rank) {}

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
                bytes = message(*sent, s);
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
    /// What this replica sends of a chunk. The owner of a sum reads what it sends of it, too.
    std::vector<float> sent_of(int c, bool storing) {
        const std::span<float> x = chunk(c);
        std::vector<float> numbers(x.begin(), x.end());
        const bool casts = storing ? how_.casts_result && !as_received_[c] : how_.casts;
        if (casts) cast_message(how_.blocks, numbers.data(), std::ssize(numbers));
        if (storing) {
            std::ranges::copy(numbers, x.begin());
            as_received_[c] = true;
        }
        return numbers;
    }
    std::vector<std::byte> message(const Transfer& t, int step) {
        std::vector<std::byte> bytes;
        for (int c = t.chunk; c < t.chunk + t.chunks; ++c) {
            const std::vector<float> numbers = sent_of(c, step >= schedule_.reducing_steps());
            if (sent_as_.bits() <= 8) append_codes<std::uint8_t>(sent_as_, numbers, bytes);
            else if (sent_as_.bits() <= 16) append_codes<std::uint16_t>(sent_as_, numbers, bytes);
            else append_codes<std::uint32_t>(sent_as_, numbers, bytes);
        }
        return bytes;
    }
    void receive(const Transfer& t, std::span<const std::byte> bytes) {
        const std::vector<float> all = sent_as_.bits() <= 8    ? numbers_of<std::uint8_t>(sent_as_, bytes)
                                       : sent_as_.bits() <= 16 ? numbers_of<std::uint16_t>(sent_as_, bytes)
                                                               : numbers_of<std::uint32_t>(sent_as_, bytes);
        std::size_t at = 0;
        for (int c = t.chunk; c < t.chunk + t.chunks; ++c) {
            const std::span<float> own = chunk(c);
            const auto numbers = std::span(all).subspan(at, own.size());
            at += own.size();
            switch (t.receive) {
            case Receive::add:
                for (std::size_t i = 0; i < own.size(); ++i) own[i] = how_.transport.add(own[i], numbers[i]);
                break;
            case Receive::keep: kept_[c][t.from].assign(numbers.begin(), numbers.end()); break;
            case Receive::store:
                std::ranges::copy(numbers, own.begin());
                as_received_[c] = true;
                break;
            }
        }
    }
    /// Adds chunks of which this replica has kept those of all.
    void add_kept() {
        for (auto& [c, of] : kept_) {
            of[rank_] = sent_of(c, false);
            std::vector<float> together;
            for (const auto& [rank, numbers] : of) together.insert(together.end(), numbers.begin(), numbers.end());
            const std::span<float> own = chunk(c);
            for (std::size_t i = 0; i < own.size(); ++i)
                own[i] =
                    sum_at_once(how_.transport, how_.sum, together.data() + i, std::ssize(own), schedule_.replicas());
        }
        kept_.clear();
    }

    Schedule schedule_;
    ChunkReduction how_;
    FormatSpec sent_as_;
    std::vector<float> numbers_;
    int rank_;
    std::map<int, std::map<int, std::vector<float>>> kept_; ///< by chunk: by replica
    std::map<int, bool> as_received_;                       ///< chunks that are read as they were sent
};

} // namespace

std::vector<float> ranked_all_reduce(const op::AllReduce& op, std::span<const float> own, int replica,
                                     const std::function<float(float amax)>& share_amax,
                                     const std::function<std::vector<std::byte>(const Exchange&)>& exchange) {
    float amax = 0;
    if (op.scaled) {
        std::uint32_t most = 0; // bits of magnitudes are ordered as magnitudes are
        for (const float x : own) most = std::max(most, std::bit_cast<std::uint32_t>(x) & 0x7fffffff);
        amax = share_amax(std::bit_cast<float>(most));
    }
    const Transport transport = Transport::of(op, amax);
    std::vector<float> numbers(own.begin(), own.end());
    for (float& x : numbers) x = transport.send(x);
    std::vector<float> mean = Replica(op, transport, std::move(numbers), replica).run(exchange);
    if (transport.changes_sums())
        for (float& x : mean) x = transport.receive(x);
    return mean;
}

} // namespace amp
