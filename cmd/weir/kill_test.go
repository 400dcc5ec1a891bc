package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
)

// outcome is what a producer knows of one of its records.
type outcome int

const (
	unknown outcome = iota // sent, and no answer came, or one that says that nobody knows
	stored                 // acknowledged
	refused                // an answer said that it is not stored, or it never left the producer
)

// sent is a record that a producer tried to store.
type sent struct {
	what      outcome
	partition int
	offset    int64
}

// killProducer sends one request after the other and remembers what became of each record. A record's
// value is the producer's name and a number that rises.
type killProducer struct {
	name  string
	keyed bool          // every record has the producer's name as its key, so all go to one partition
	retry bool          // requests have an Idempotency-Key and are repeated until they are answered
	every time.Duration // at least, between two requests
	sent  []sent
	rng   *rand.Rand
}

const killTopic = "killed"

// work runs until stop is closed. A producer that repeats ends with an answered request.
func (p *killProducer) work(base *atomic.Pointer[string], stop, abandon <-chan struct{}) {
	for round := 0; ; round++ {
		select {
		case <-stop:
			return
		case <-time.After(p.every):
		}
		first, count := len(p.sent), 1+p.rng.IntN(20)
		body := p.body(first, count)
		p.sent = append(p.sent, make([]sent, count)...)
		headers := []string{"Content-Type", "application/json"}
		if p.retry {
			headers = append(headers, "Idempotency-Key", p.name+"-"+strconv.Itoa(round))
		}
		for !p.request(*base.Load(), body, headers, p.sent[first:]) {
			select {
			case <-abandon:
				return
			case <-time.After(10 * time.Millisecond):
			}
			if !p.retry {
				break // what it was told stands
			}
		}
	}
}

func (p *killProducer) body(first, count int) string {
	records := make([]string, count)
	for i := range records {
		key := ""
		if p.keyed {
			key = fmt.Sprintf(`"key":%q,`, p.name)
		}
		records[i] = fmt.Sprintf(`{%s"value":"%s %d %s","value_encoding":"string"}`, key, p.name, first+i, strings.Repeat("x", p.rng.IntN(300)))
	}
	return `{"records":[` + strings.Join(records, ",") + `]}`
}

// request sends once and notes what the answer says of each record. It returns whether all are stored.
func (p *killProducer) request(base, body string, headers []string, records []sent) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	a, err := ask(ctx, http.MethodPost, base+"/v1/topics/"+killTopic+"/records", body, headers...)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			mark(records, refused) // it never left
		}
		return false // otherwise nobody knows
	}
	var answered struct {
		Results []struct {
			Status    int
			Partition int
			Offset    int64
		}
	}
	if json.Unmarshal(a.body, &answered) != nil || len(answered.Results) != len(records) {
		if a.status != http.StatusGatewayTimeout {
			mark(records, refused)
		}
		return false
	}
	all := true
	for i, result := range answered.Results {
		switch {
		case result.Status == http.StatusOK:
			records[i] = sent{stored, result.Partition, result.Offset}
		case records[i].what == stored:
			// A repeat was refused, but the first try had been acknowledged.
		case result.Status != http.StatusGatewayTimeout && !p.retry:
			records[i].what = refused
		}
		all = all && result.Status == http.StatusOK
	}
	return all
}

// mark notes a refusal of this try. What an earlier try of the request left unknown stays unknown.
func mark(records []sent, what outcome) {
	for i := range records {
		if records[i].what != stored {
			records[i].what = what
		}
	}
}

// TestKilledUnderLoadLosesNothing ends a node with SIGKILL at random moments while producers are at
// work, starts it again on the same directory, and in the end reads everything back: what was
// acknowledged is there once and in order, at its offset; what was refused is not there; of what nobody
// knows there is one copy at most, and exactly one where the producer repeated until it was answered.
func TestKilledUnderLoadLosesNothing(t *testing.T) {
	kills := 5
	if soak() {
		kills = 50
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d kills", seed, kills)
	rng := rand.New(rand.NewPCG(seed, 1))

	data := filepath.Join(t.TempDir(), "data")
	n := serve(t, "--data", data)
	must(t, http.MethodPost, n.base+"/v1/topics", `{"name":"`+killTopic+`","partitions":3,"settings":{"segment.bytes":65536}}`, nil, "Content-Type", "application/json")

	var base atomic.Pointer[string]
	base.Store(&n.base)
	producers := killProducers(seed)
	stop, abandon := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for _, p := range producers {
		wg.Go(func() { p.work(&base, stop, abandon) })
	}
	for kill := 1; kill <= kills; kill++ {
		// The load goes on for a random time; then the process is gone in the middle of whatever it does.
		<-time.After(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
		n.kill()
		for rng.IntN(4) == 0 { // sometimes also while it starts
			early, _, err := launch("--http", "127.0.0.1:0", "--data", data)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
			early.kill()
		}
		n = serve(t, "--data", data)
		base.Store(&n.base)
	}
	close(stop)
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		close(abandon)
		<-ended
		t.Fatal("a producer's repeated request was not answered within a minute")
	}

	verifyKilled(t, n.base, producers, 3)
	if err := n.stop(t); err != nil {
		t.Fatalf("the node ended with %v: %s", err, n.stderr)
	}
	dumpAll(t, data)
}

func killProducers(seed uint64) []*killProducer {
	var all []*killProducer
	for i := range 8 {
		p := &killProducer{keyed: i%4 < 2, retry: i%2 == 0, rng: rand.New(rand.NewPCG(seed, uint64(100+i)))}
		p.name = fmt.Sprintf("p%d-keyed=%v-retry=%v", i, p.keyed, p.retry)
		all = append(all, p)
	}
	return all
}

// verifyKilled compares what the node has with what the producers know.
func verifyKilled(t *testing.T, base string, producers []*killProducer, partitions int) {
	t.Helper()
	type place struct {
		partition int
		offset    int64
	}
	found := map[string][]place{} // by producer and number
	for partition := range partitions {
		last := map[string]int{} // by producer: the number of its last record in this partition
		for i, r := range readAll(t, base, killTopic, partition) {
			if r.Offset != int64(i) {
				t.Fatalf("partition %d: the record at place %d has offset %d", partition, i, r.Offset)
			}
			name, rest, _ := strings.Cut(r.Value, " ")
			number, _, _ := strings.Cut(rest, " ")
			k, err := strconv.Atoi(number)
			if err != nil {
				t.Fatalf("partition %d offset %d holds %.60q, which nobody sent", partition, i, r.Value)
			}
			if before, ok := last[name]; ok && k <= before {
				t.Errorf("partition %d offset %d: record %d of %s comes after %d", partition, i, k, name, before)
			}
			last[name] = k
			found[name+" "+number] = append(found[name+" "+number], place{partition, r.Offset})
		}
	}
	counts := map[outcome]int{}
	for _, p := range producers {
		for k, s := range p.sent {
			id := p.name + " " + strconv.Itoa(k)
			at := found[id]
			delete(found, id)
			counts[s.what]++
			switch {
			case s.what == stored && (len(at) != 1 || at[0] != place{s.partition, s.offset}):
				t.Errorf("%s was acknowledged at %d/%d and is at %v", id, s.partition, s.offset, at)
			case s.what == refused && len(at) != 0:
				t.Errorf("%s was refused and is at %v", id, at)
			case s.what == unknown && (len(at) > 1 || p.retry):
				t.Errorf("%s: nobody knows, and it is at %v; repeated until answered: %v", id, at, p.retry)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("nobody sent %s, and it is at %v", id, found[id])
	}
	t.Logf("stored %d, refused %d, unknown %d", counts[stored], counts[refused], counts[unknown])
	if counts[stored] == 0 {
		t.Error("nothing was stored, so nothing was tested")
	}
}

// dumpAll verifies every partition's files without a server.
func dumpAll(t *testing.T, data string) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(data, "topics", "*", "*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no partitions below %s: %v", data, err)
	}
	for _, dir := range dirs {
		if _, err := strconv.Atoi(filepath.Base(dir)); err != nil {
			continue
		}
		found, err := storage.Dump(vfs.OS{}, dir, io.Discard, storage.DumpOptions{})
		if err != nil || found.Problems > 0 {
			t.Errorf("%s: %d problems, %v", dir, found.Problems, err)
		}
	}
}
