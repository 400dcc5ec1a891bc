package broker

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/weirlog/weir/topic"
)

// TestTailReads compares every read with a plain list of batches.
func TestTailReads(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		type one struct {
			base, end topic.Offset
			bytes     []byte
		}
		var all []one
		var tl tail
		limit := 8<<10 + rng.IntN(64<<10)
		end := topic.Offset(rng.IntN(1000))
		first := end
		for range 300 {
			b := bytes.Repeat([]byte{byte(end)}, 1+rng.IntN(3000))
			n := topic.Offset(1 + rng.IntN(10))
			tl.add(b, end, end+n, limit)
			all = append(all, one{end, end + n, b})
			end += n
			if tl.bytes > limit {
				t.Fatalf("seed %d: the tail takes %d bytes, the limit is %d", seed, tl.bytes, limit)
			}
			from := first + topic.Offset(rng.Int64N(int64(end-first)+2))
			below := all[rng.IntN(len(all))].end
			most := rng.IntN(10_000)
			got, next := tl.read(from, below, most)
			if len(got) == 0 {
				continue // not held, or nothing there
			}
			i := 0
			for all[i].end <= from {
				i++
			}
			var want []byte
			for {
				want = append(want, all[i].bytes...)
				if all[i].end == next {
					break
				}
				i++
			}
			if !bytes.Equal(got, want) || next > below {
				t.Fatalf("seed %d: read from %d below %d: next %d, %d bytes instead of %d", seed, from, below, next, len(got), len(want))
			}
			if len(got) > most && all[i].base > from {
				t.Fatalf("seed %d: %d bytes in several batches, asked for %d", seed, len(got), most)
			}
		}
		if got, next := tl.read(all[len(all)-1].base, end, 1); next != end || !bytes.Equal(got, all[len(all)-1].bytes) {
			t.Fatalf("seed %d: the last batch is not in the tail", seed)
		}
	}
}

func TestTailEdges(t *testing.T) {
	var tl tail
	if got, next := tl.read(5, 10, 100); got != nil || next != 5 {
		t.Error("an empty tail returned something")
	}
	tl.add(make([]byte, 100), 10, 12, 1<<20)
	for _, from := range []topic.Offset{0, 9, 12, 13} {
		if got, _ := tl.read(from, 12, 100); got != nil {
			t.Errorf("offset %d is not in the tail, and was returned", from)
		}
	}
	if got, _ := tl.read(10, 11, 100); got != nil {
		t.Error("a batch that ends above the limit was returned")
	}
	if got, next := tl.read(11, 12, 1); len(got) != 100 || next != 12 {
		t.Error("the batch around an offset was not returned")
	}
	tl.add(make([]byte, 2<<20), 12, 13, 1<<20)
	if tl.bytes != 0 {
		t.Error("a batch over the limit stays in the tail, or left a hole in it")
	}
	tl.add(make([]byte, 10), 20, 21, 1<<20)
	tl.add(make([]byte, 10), 30, 31, 1<<20)
	if got, _ := tl.read(20, 31, 100); got != nil {
		t.Error("batches on both sides of a hole are in the tail")
	}
}

// TestTailForget: what lies below an offset is gone, the rest is as it was.
func TestTailForget(t *testing.T) {
	for below := range topic.Offset(45) {
		var tl tail
		for i := range topic.Offset(20) {
			tl.add(bytes.Repeat([]byte{byte(i)}, 900), 2*i, 2*i+2, 64<<10) // some to a chunk
		}
		tl.forget(below)
		room := 0
		for _, c := range tl.chunks {
			room += cap(c.buf)
		}
		if tl.bytes != room {
			t.Fatalf("below %d: %d bytes are counted, %d are kept", below, tl.bytes, room)
		}
		for from := range topic.Offset(40) {
			got, _ := tl.read(from, 40, 1)
			kept := from-from%2 >= below
			if kept != (len(got) == 900) || kept && got[0] != byte(from/2) {
				t.Fatalf("below %d: offset %d: %d bytes", below, from, len(got))
			}
		}
		tl.add(make([]byte, 10), 40, 41, 64<<10)
		if got, next := tl.read(40, 41, 1); len(got) != 10 || next != 41 {
			t.Fatalf("below %d: nothing can be added", below)
		}
	}
}

// TestTailShared has readers look at bytes while more are added beside them; the race detector watches.
func TestTailShared(t *testing.T) {
	var tl tail
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			at := topic.Offset(0)
			for {
				got, next := tl.read(at, 1<<40, 5000)
				for i, c := range got {
					if want := byte(at) + byte(i/100); c != want {
						t.Errorf("offset %d holds %d, not %d", at, c, want)
						return
					}
				}
				if at = next; at == 3000 {
					return
				}
				select {
				case <-done:
					if len(got) == 0 {
						return // it fell out of the tail
					}
				default:
				}
			}
		})
	}
	for i := range 3000 {
		tl.add(bytes.Repeat([]byte{byte(i)}, 100), topic.Offset(i), topic.Offset(i+1), 64<<10)
	}
	close(done)
	wg.Wait()
}

func BenchmarkTailRead(b *testing.B) {
	var tl tail
	for i := range 1000 {
		tl.add(make([]byte, 300), topic.Offset(i), topic.Offset(i+1), 1<<20)
	}
	b.ReportAllocs()
	for b.Loop() {
		if got, _ := tl.read(990, 1000, 1<<20); len(got) != 3000 {
			b.Fatal(fmt.Sprint(len(got)))
		}
	}
}

// TestTailForNobody: what nobody reads is not copied, and a reader that comes back finds what is added
// from then on.
func TestTailForNobody(t *testing.T) {
	const limit = 64 << 10
	var tl tail
	end := topic.Offset(0)
	batch := make([]byte, 1000)
	add := func(bytes int) {
		for n := 0; n < bytes; n += len(batch) {
			tl.add(batch, end, end+1, limit)
			end++
		}
	}
	held := func() bool {
		got, _ := tl.read(end-1, end, 1)
		return len(got) > 0
	}
	for round := range 2 {
		add(unreadMost)
		if !held() {
			t.Fatalf("round %d: %d unread bytes were not kept", round, unreadMost)
		}
		add(unreadMost + 2*len(batch)) // it was just read: this begins anew
		if len(tl.chunks) > 0 || tl.bytes > 0 {
			t.Fatalf("round %d: %d bytes are kept for nobody", round, tl.bytes)
		}
		if held() {
			t.Fatalf("round %d: found what was not kept", round)
		}
		add(1)
		if !held() {
			t.Fatalf("round %d: nothing is kept for the reader who came back", round)
		}
	}
}
