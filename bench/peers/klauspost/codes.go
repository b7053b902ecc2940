// What this peer knows of the library: which options make which code, and how each kernel is forced.
// Everything stays on one goroutine, since every peer is measured on one core.
package main

import (
	"errors"
	"os"

	"github.com/klauspost/cpuid/v2"
	"github.com/klauspost/reedsolomon"
)

const codes = "rs-points,rs,leopard-gf8"

// kernelOptions turns PEER_KERNEL into options and the name to report.
func kernelOptions() (string, []reedsolomon.Option) {
	noWide := []reedsolomon.Option{
		reedsolomon.WithAVX512(false), reedsolomon.WithGFNI(false), reedsolomon.WithAVXGFNI(false),
	}
	switch want := os.Getenv("PEER_KERNEL"); {
	case want == "avx2" && cpuid.CPU.Has(cpuid.AVX2):
		return "avx2", noWide
	case want == "plain":
		return "plain", append(noWide,
			reedsolomon.WithAVX2(false), reedsolomon.WithSSSE3(false), reedsolomon.WithSSE2(false))
	}
	return "auto", nil
}

func newEncoder(j *job) (reedsolomon.Encoder, error) {
	_, options := kernelOptions()
	options = append(options, reedsolomon.WithMaxGoroutines(1))
	switch j.code {
	case "rs-points":
	case "rs":
		options = append(options, reedsolomon.WithCauchyMatrix())
	case "leopard-gf8":
		options = append(options, reedsolomon.WithLeopardGF(true))
		if j.length%64 != 0 {
			return nil, errors.New("leopard needs LEN to be a multiple of 64")
		}
	default:
		return nil, errors.New("unknown code")
	}
	if j.packet != 0 {
		return nil, errors.New("a byte code has no packets")
	}
	return reedsolomon.New(j.k, j.m, options...)
}

// rebuild asks for the lost blocks alone; a length of zero with capacity makes the library fill them in place.
func rebuild(encoder reedsolomon.Encoder, blocks [][]byte, lost []int, required []bool) error {
	for _, i := range lost {
		blocks[i] = blocks[i][:0]
	}
	return encoder.ReconstructSome(blocks, required)
}
