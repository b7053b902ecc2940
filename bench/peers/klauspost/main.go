// Peer around github.com/klauspost/reedsolomon. This file is the protocol: it parses one request line,
// fills the blocks and runs the clock; codes.go holds what concerns the library.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/reedsolomon"
)

type job struct {
	code                 string
	k, m, length, packet int
	lost                 []int
	required             []bool
}

const maxBlocks, maxLength = 256, 1 << 30

func main() {
	// One thread runs Go code and the collector stays out of the clock.
	runtime.GOMAXPROCS(1)
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == "quit\n" {
			return
		}
		if err := answer(strings.Fields(line), in, out); err != nil {
			fmt.Fprintf(out, "no %s\n", strings.Join(strings.Fields(err.Error()), " "))
		}
		out.Flush()
	}
}

// answer writes the reply to one request; the error it returns is the reason for a "no".
func answer(words []string, in io.Reader, out io.Writer) error {
	if len(words) == 0 {
		return errors.New("empty request")
	}
	if words[0] == "hello" {
		kernel, _ := kernelOptions()
		_, err := fmt.Fprintf(out, "ok klauspost %s codes=%s kernel=%s\n", libraryVersion(), codes, kernel)
		return err
	}
	verb, timed := strings.CutPrefix(words[0], "time-")
	decoding := verb == "decode"
	if !decoding && verb != "encode" {
		return errors.New("unknown request")
	}
	least := 6
	if timed {
		least = 8
	}
	if len(words) < least {
		return errors.New("malformed request")
	}
	var n [4]int
	for i, limit := range []int{1 << 16, 1 << 16, maxLength, maxLength} {
		var err error
		if n[i], err = number(words[2+i], limit); err != nil {
			return err
		}
	}
	j := &job{code: words[1], k: n[0], m: n[1], length: n[2], packet: n[3]}
	err := j.check(decoding, words[least:])
	var encoder reedsolomon.Encoder
	if err == nil {
		encoder, err = newEncoder(j)
	}
	if timed {
		if err != nil {
			return err
		}
		return j.clock(encoder, decoding, words[6], words[7], out)
	}
	given := j.k
	if decoding {
		given += j.m
	}
	if err != nil {
		// The payload of a refused request is dropped, so that the stream stays in step.
		io.CopyN(io.Discard, in, int64(given)*int64(j.length))
		return err
	}
	return j.once(encoder, decoding, given, in, out)
}

func (j *job) check(decoding bool, rest []string) error {
	if j.k == 0 || j.m == 0 || j.length == 0 {
		return errors.New("K, M and LEN must be positive")
	}
	if j.k+j.m > maxBlocks {
		return errors.New("more than 256 blocks")
	}
	j.required = make([]bool, j.k+j.m)
	if decoding && len(rest) > 0 {
		for _, word := range strings.Split(rest[0], ",") {
			if word == "-" {
				continue
			}
			i, err := number(word, j.k+j.m-1)
			if err != nil {
				return errors.New("a lost position is out of range")
			}
			j.required[i] = true
		}
	}
	for i, lost := range j.required {
		if lost {
			j.lost = append(j.lost, i)
		}
	}
	if len(j.lost) > j.m {
		return errors.New("more blocks lost than parity")
	}
	return nil
}

func (j *job) once(encoder reedsolomon.Encoder, decoding bool, given int, in io.Reader, out io.Writer) error {
	blocks := reedsolomon.AllocAligned(j.k+j.m, j.length)
	for _, block := range blocks[:given] {
		if _, err := io.ReadFull(in, block); err != nil {
			os.Exit(1)
		}
	}
	answer, err := blocks[j.k:], error(nil)
	if !decoding {
		err = encoder.Encode(blocks)
	} else {
		answer = blocks
		if len(j.lost) > 0 {
			err = rebuild(encoder, blocks, j.lost, j.required)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "ok %d\n", len(answer)*j.length)
	for _, block := range answer {
		out.Write(block)
	}
	return nil
}

func (j *job) clock(encoder reedsolomon.Encoder, decoding bool, countWord, roundsWord string, out io.Writer) error {
	count, err := number(countWord, 1<<24)
	if err != nil {
		return err
	}
	rounds, err := number(roundsWord, 1<<30)
	if err != nil {
		return err
	}
	if count == 0 {
		return errors.New("STRIPES must be positive")
	}
	if decoding && len(j.lost) == 0 {
		return errors.New("nothing is lost")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	stripes := j.fill(count)
	work := encoder.Encode
	var copies [][]byte
	if decoding {
		for _, blocks := range stripes {
			if err := encoder.Encode(blocks); err != nil {
				return err
			}
		}
		// One stripe's lost blocks are really wiped, so that a decode that does nothing is noticed.
		for _, i := range j.lost {
			copies = append(copies, bytes.Clone(stripes[0][i]))
			clear(stripes[0][i])
		}
		work = func(blocks [][]byte) error { return rebuild(encoder, blocks, j.lost, j.required) }
	}
	if err := work(stripes[0]); err != nil {
		return err
	}
	start := time.Now()
	for range rounds {
		for _, blocks := range stripes {
			if err := work(blocks); err != nil {
				return err
			}
		}
	}
	took := time.Since(start).Seconds()
	for n, i := range j.lost {
		if decoding && !bytes.Equal(copies[n], stripes[0][i]) {
			return errors.New("decoded wrongly")
		}
	}
	_, err = fmt.Fprintf(out, "ok %.9f\n", took)
	return err
}

// gap is what lies between two blocks, so that not all of them fall into the same cache sets.
const gap = 5 * 64

// fill makes all stripes in one arena and writes every byte, so that no page fault lands inside the clock.
func (j *job) fill(count int) [][][]byte {
	total := j.k + j.m
	pitch := (j.length+63)/64*64 + gap
	arena := reedsolomon.AllocAligned(1, total*count*pitch)[0]
	blocks := make([][]byte, total*count)
	for b := range blocks {
		blocks[b] = arena[b*pitch:][:j.length:j.length]
	}
	source := rand.NewChaCha8([32]byte{1})
	stripes := make([][][]byte, count)
	for s := range stripes {
		stripes[s] = blocks[s*total : (s+1)*total]
		for _, block := range stripes[s] {
			source.Read(block)
		}
	}
	return stripes
}

func number(word string, limit int) (int, error) {
	n, err := strconv.ParseUint(word, 10, 63)
	if err != nil || n > uint64(limit) {
		return 0, errors.New("malformed request")
	}
	return int(n), nil
}

func libraryVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/klauspost/reedsolomon" {
				return module.Version
			}
		}
	}
	return "unknown"
}
