// formats/ alone, with only the standard library: what a cross build can run.
#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>

#include <vector>

int main() {
    std::vector<float> in, out;
    for (std::uint32_t bits = 0; bits < 0xff000000; bits += 0x10001) in.push_back(std::bit_cast<float>(bits));
    out.resize(in.size());
    for (const amp::FormatSpec& format : amp::formats) {
        amp::quantize(format, in, out);
        for (std::size_t i = 0; i < in.size(); ++i)
            if (std::bit_cast<std::uint32_t>(out[i]) != std::bit_cast<std::uint32_t>(amp::quantize(format, in[i])))
                return 1;
    }
    return amp::decode(amp::format("e4m3"), 0x7e) == 448.0f ? 0 : 1;
}
