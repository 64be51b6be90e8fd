// The hash lowbias32, which ../dropout.py describes.
#pragma once

#include <cstdint>

inline uint32_t lowbias32(uint32_t bits) {
  bits = (bits ^ (bits >> 16)) * 0x7FEB352Du;
  bits = (bits ^ (bits >> 15)) * 0x846CA68Bu;
  return bits ^ (bits >> 16);
}
