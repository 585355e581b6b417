#include <ampscope/sim/io/provenance.h>

#include <ampscope/sim/io/byte_file.h>

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <memory>
#include <vector>

namespace amp {

SourceFile hashed(const std::filesystem::path& file, const std::string& name) {
    constexpr std::size_t block = 1 << 20;
    const ByteFile in(file);
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
    std::vector<std::byte> buffer(block);
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    SourceFile source{.name = name, .bytes = 0, .sha256 = {}};
    bool good = EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
    while (good && source.bytes < in.size()) {
        const auto part = std::span(buffer).first(std::min<std::uint64_t>(block, in.size() - source.bytes));
        in.read_at(source.bytes, part);
        good = EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
        source.bytes += part.size();
    }
    if (!good || EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1)
        throw FileError(file, "cannot be hashed");
    for (unsigned int i = 0; i < length; ++i) source.sha256 += fmt::format("{:02x}", digest[i]);
    return source;
}

} // namespace amp
