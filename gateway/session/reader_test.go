package session_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func newHub(t testing.TB, log *fakeLog, change func(*session.Config)) *session.Hub {
	t.Helper()
	cfg := session.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	h, err := session.NewHub(cfg, session.Deps{Log: log, Producer: log, NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func names(list ...topic.Name) []topic.Name { return list }

// seen is what a reader gave, in words: "orders/0@3=v" for a record, "gap orders/0 1..3 retention" and so on.
type seen []string

// drain reads until there is nothing left.
func drain(t testing.TB, r *session.Reader, limit session.Limit) seen {
	t.Helper()
	var out seen
	for range 10_000 {
		page, err := r.Next(t.Context(), limit)
		if err != nil {
			return append(out, "error "+fault.KindOf(err).String())
		}
		out = append(out, words(t, page)...)
		if page.Records > limit.Records || page.Bytes > limit.Bytes && page.Records > 1 {
			t.Errorf("a page has %d records in %d bytes, the limit was %+v", page.Records, page.Bytes, limit)
		}
		r.PassedAll(page)
		if page.AtEnd {
			return out
		}
	}
	t.Fatal("the reader never reaches the end")
	return nil
}

func words(t testing.TB, page *session.Page) seen {
	t.Helper()
	var out seen
	for _, n := range page.Notices {
		if n.Gap != nil {
			out = append(out, fmt.Sprintf("gap %s/%d %d..%d %s", n.Gap.Topic, n.Gap.Partition, n.Gap.From, n.Gap.To, n.Gap.Reason))
		} else {
			out = append(out, fmt.Sprintf("partitions %s %d %v", n.Partitions.Topic, n.Partitions.Count, n.Partitions.Added))
		}
	}
	for i := range page.Runs {
		for k := range page.Runs[i].Len() {
			out = append(out, record(t, page.Runs[i].Record(k)))
		}
	}
	return out
}

func record(t testing.TB, raw []byte) string {
	t.Helper()
	var r struct {
		Topic     string
		Partition int
		Offset    int64
		Value     any
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(raw), "data: "), ",")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Errorf("record %q: %v", raw, err)
	}
	return fmt.Sprintf("%s/%d@%d=%v", r.Topic, r.Partition, r.Offset, r.Value)
}

var wide = session.Limit{Records: 1000, Bytes: 1 << 20}

func open(t testing.TB, h *session.Hub, spec session.Spec) *session.Reader {
	t.Helper()
	r, err := h.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func expect(t testing.TB, got seen, want ...string) {
	t.Helper()
	if len(got) == 0 && len(want) == 0 {
		return
	}
	if !reflect.DeepEqual([]string(got), want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func resume(t testing.TB, r *session.Reader) session.From {
	t.Helper()
	from, err := session.ParseCursor(r.Cursor().String())
	if err != nil {
		t.Fatal(err)
	}
	return from
}

func TestPositions(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 2)
	log.append("orders", 0, topic.Record{Value: []byte("1"), Timestamp: 100}, topic.Record{Value: []byte("2"), Timestamp: 100})
	log.append("orders", 0, topic.Record{Value: []byte("3"), Timestamp: 200})
	log.append("orders", 1, topic.Record{Value: []byte("4"), Timestamp: 150})
	h := newHub(t, log, nil)
	for _, c := range []struct {
		name string
		spec session.Spec
		want []string
	}{
		{"earliest", session.Spec{}, []string{"orders/0@0=1", "orders/0@1=2", "orders/0@2=3", "orders/1@0=4"}},
		{"latest", session.Spec{From: session.From{Kind: session.Latest}}, nil},
		{"last", session.Spec{From: session.From{Kind: session.Last, Last: 1}}, []string{"orders/0@2=3", "orders/1@0=4"}},
		{"last of more than there is", session.Spec{From: session.From{Kind: session.Last, Last: 1 << 62}}, []string{"orders/0@0=1", "orders/0@1=2", "orders/0@2=3", "orders/1@0=4"}},
		{"time", session.Spec{From: session.From{Kind: session.Time, Time: 150}}, []string{"orders/0@2=3", "orders/1@0=4"}},
		{"time behind the end", session.Spec{From: session.From{Kind: session.Time, Time: 1000}}, nil},
		{"offsets", session.Spec{From: session.From{Kind: session.Offsets, Offsets: map[topic.Partition]topic.Offset{0: 1}}}, []string{"orders/0@1=2", "orders/0@2=3"}},
		{"partitions", session.Spec{Partitions: []topic.Partition{1}}, []string{"orders/1@0=4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.Topics = names("orders")
			expect(t, drain(t, open(t, h, c.spec), wide), c.want...)
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 2)
	log.create("bills", 1)
	log.values("orders", 0, "1", "2")
	h := newHub(t, log, func(c *session.Config) { c.MaxPartitions = 2 })
	other := resume(t, open(t, h, session.Spec{Topics: names("bills")}))
	part := resume(t, open(t, h, session.Spec{Topics: names("orders"), Partitions: []topic.Partition{0}}))
	for _, c := range []struct {
		name string
		spec session.Spec
		want fault.Kind
	}{
		{"no topic", session.Spec{Topics: names("ordrs")}, fault.NoTopic},
		{"nothing", session.Spec{}, fault.Validation},
		{"twice", session.Spec{Topics: names("orders", "orders")}, fault.Validation},
		{"no partition", session.Spec{Topics: names("orders"), Partitions: []topic.Partition{2}}, fault.NoPartition},
		{"a partition twice", session.Spec{Topics: names("orders"), Partitions: []topic.Partition{0, 0}}, fault.Validation},
		{"too many partitions", session.Spec{Topics: names("orders", "bills")}, fault.Validation},
		{"partitions of two topics", session.Spec{Topics: names("orders", "bills"), Partitions: []topic.Partition{0}}, fault.Validation},
		{"another topic's cursor", session.Spec{Topics: names("orders"), From: other}, fault.InvalidCursor},
		{"a cursor without the partition", session.Spec{Topics: names("orders"), Partitions: []topic.Partition{1}, From: part}, fault.InvalidCursor},
		{"below the log, strict", session.Spec{Topics: names("orders"), OnGap: session.GapError, From: session.From{Kind: session.Offsets, Offsets: map[topic.Partition]topic.Offset{0: 3}}}, fault.OffsetRange},
		{"an offset for a partition that is not read", session.Spec{Topics: names("orders"), Partitions: []topic.Partition{1}, From: session.From{Kind: session.Offsets, Offsets: map[topic.Partition]topic.Offset{0: 1}}}, fault.Validation},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := h.Open(t.Context(), c.spec)
			if !fault.Is(err, c.want) {
				t.Fatalf("got %v, want a fault of kind %v", err, c.want)
			}
			if r != nil {
				t.Error("a reader was returned beside the error")
			}
		})
	}
}

// A cursor taken after any record resumes exactly behind it, whatever the limits of the pages are.
func TestEveryCursorResumes(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 3)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		var values []string
		for range 1 + rnd.IntN(5) {
			values = append(values, fmt.Sprintf(`"%d-%d"`, i, rnd.IntN(1000)))
		}
		log.values("orders", topic.Partition(rnd.IntN(3)), values...)
	}
	h := newHub(t, log, nil)
	whole := drain(t, open(t, h, session.Spec{Topics: names("orders")}), wide)
	for _, limit := range []session.Limit{{Records: 1, Bytes: 1 << 20}, {Records: 7, Bytes: 300}, {Records: 1000, Bytes: 1}, wide} {
		var got seen
		spec := session.Spec{Topics: names("orders"), Format: session.Format{Shape: session.Events}}
		for {
			r := open(t, h, spec)
			page, err := r.Next(t.Context(), limit)
			if err != nil {
				t.Fatal(err)
			}
			if page.Records == 0 {
				break
			}
			// Give up somewhere inside the page.
			stop := 1 + rnd.IntN(page.Records)
			for i := range page.Runs {
				for k := range page.Runs[i].Len() {
					if stop == 0 {
						break
					}
					stop--
					got = append(got, record(t, page.Runs[i].Record(k)))
					r.Passed(&page.Runs[i], k+1)
				}
			}
			spec.From = resume(t, r)
			r.Close()
		}
		same(t, got, whole)
	}
}

// same compares what was seen of each partition; how partitions alternate is up to the reader.
func same(t testing.TB, got, want seen) {
	t.Helper()
	split := func(s seen) map[string]seen {
		by := map[string]seen{}
		for _, w := range s {
			p, _, _ := strings.Cut(w, "@")
			by[p] = append(by[p], w)
		}
		return by
	}
	if g, w := split(got), split(want); !reflect.DeepEqual(g, w) {
		t.Errorf("got\n\t%v\nwant\n\t%v", g, w)
	}
}

func TestGaps(t *testing.T) {
	fill := func(t *testing.T) (*fakeLog, *session.Hub) {
		log := newFakeLog(t)
		log.create("orders", 1)
		for i := range 5 {
			log.values("orders", 0, fmt.Sprint(2*i), fmt.Sprint(2*i+1))
		}
		return log, newHub(t, log, nil)
	}
	readTwo := func(t *testing.T, h *session.Hub, policy session.OnGap) *session.Reader {
		r := open(t, h, session.Spec{Topics: names("orders"), OnGap: policy})
		page, err := r.Next(t.Context(), session.Limit{Records: 2, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		r.PassedAll(page)
		return r
	}
	t.Run("retention, behind a reader", func(t *testing.T) {
		log, h := fill(t)
		r := readTwo(t, h, session.GapEarliest)
		spec := session.Spec{Topics: names("orders"), From: resume(t, r)}
		log.retain("orders", 0, 6)
		want := []string{"gap orders/0 2..6 retention", "orders/0@6=6", "orders/0@7=7", "orders/0@8=8", "orders/0@9=9"}
		expect(t, drain(t, r, wide), want...)
		expect(t, drain(t, open(t, h, spec), wide), want...)
		spec.OnGap = session.GapLatest
		expect(t, drain(t, open(t, h, spec), wide), "gap orders/0 2..10 retention")
		spec.OnGap = session.GapError
		if _, err := h.Open(t.Context(), spec); !fault.Is(err, fault.OffsetRange) {
			t.Errorf("got %v, want OffsetRange", err)
		}
	})
	t.Run("damage", func(t *testing.T) {
		log, h := fill(t)
		log.damage("orders", 0, 4, 8)
		want := []string{
			"orders/0@0=0", "orders/0@1=1", "orders/0@2=2", "orders/0@3=3",
			"gap orders/0 4..8 damaged", "orders/0@8=8", "orders/0@9=9",
		}
		for _, limit := range []session.Limit{wide, {Records: 1, Bytes: 1}, {Records: 3, Bytes: 1 << 20}} {
			expect(t, drain(t, open(t, h, session.Spec{Topics: names("orders")}), limit), want...)
		}
	})
	t.Run("a gap that was not told yet is met again", func(t *testing.T) {
		log, h := fill(t)
		log.damage("orders", 0, 2, 4)
		r := open(t, h, session.Spec{Topics: names("orders")})
		page, err := r.Next(t.Context(), wide)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, words(t, page), "orders/0@0=0", "orders/0@1=1")
		r.PassedAll(page)
		got := drain(t, open(t, h, session.Spec{Topics: names("orders"), From: resume(t, r)}), wide)
		if len(got) == 0 || got[0] != "gap orders/0 2..4 damaged" {
			t.Errorf("got %v, want the gap first", got)
		}
	})
	t.Run("a log that was cut", func(t *testing.T) {
		log, h := fill(t)
		r := open(t, h, session.Spec{Topics: names("orders")})
		drain(t, r, wide)
		spec := session.Spec{Topics: names("orders"), From: resume(t, r)}
		log.cut("orders", 0, 6)
		log.values("orders", 0, `"new6"`, `"new7"`)
		want := []string{"gap orders/0 10..8 truncated"}
		expect(t, drain(t, r, wide), want...)
		log.values("orders", 0, `"new8"`, `"new9"`)
		got := drain(t, open(t, h, spec), wide)
		expect(t, got, "gap orders/0 10..8 truncated", "orders/0@8=new8", "orders/0@9=new9")
	})
	t.Run("beyond the end", func(t *testing.T) {
		_, h := fill(t)
		spec := session.Spec{Topics: names("orders"), From: session.From{Kind: session.Offsets, Offsets: map[topic.Partition]topic.Offset{0: 42}}}
		expect(t, drain(t, open(t, h, spec), wide), "gap orders/0 42..10 beyond_end")
	})
	t.Run("a topic that was made again", func(t *testing.T) {
		log, h := fill(t)
		r := readTwo(t, h, session.GapEarliest)
		spec := session.Spec{Topics: names("orders"), From: resume(t, r)}
		log.remove("orders")
		expect(t, drain(t, r, wide), "error topic_not_found")
		log.create("orders", 1)
		log.values("orders", 0, `"again"`)
		expect(t, drain(t, open(t, h, spec), wide), "gap orders/0 2..0 recreated", "orders/0@0=again")
		spec.OnGap = session.GapError
		if _, err := h.Open(t.Context(), spec); !fault.Is(err, fault.OffsetRange) {
			t.Errorf("got %v, want OffsetRange", err)
		}
	})
}

func TestPartitionsAreAdded(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 1)
	log.values("orders", 0, "1")
	h := newHub(t, log, nil)
	live := open(t, h, session.Spec{Topics: names("orders"), From: session.From{Kind: session.Latest}})
	bell := make(chan struct{}, 1)
	if err := live.Listen(bell); err != nil {
		t.Fatal(err)
	}
	one := open(t, h, session.Spec{Topics: names("orders"), Partitions: []topic.Partition{0}})
	expect(t, drain(t, live, wide))
	drain(t, one, wide)
	from := resume(t, live)

	log.addPartitions("orders", 3)
	<-bell
	log.values("orders", 2, "7")
	want := []string{"partitions orders 3 [1 2]", "orders/2@0=7"}
	expect(t, drain(t, live, wide), want...)
	expect(t, drain(t, open(t, h, session.Spec{Topics: names("orders"), From: from}), wide), want...)
	expect(t, drain(t, one, wide)) // asked for one partition, and reads no other
	log.values("orders", 1, "8")
	<-bell
	expect(t, drain(t, live, wide), "orders/1@0=8")
}

func TestUntilEnd(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 2)
	log.values("orders", 0, "1", "2", "3")
	h := newHub(t, log, nil)
	r := open(t, h, session.Spec{Topics: names("orders"), UntilEnd: true})
	log.values("orders", 0, "4")
	log.values("orders", 1, "5")
	page, err := r.Next(t.Context(), wide)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, words(t, page), "orders/0@0=1", "orders/0@1=2", "orders/0@2=3")
	if !page.Done {
		t.Error("the reader is not done at the end of the moment of opening")
	}
}

// A partition with a long history must not keep the others waiting.
func TestFairness(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 3)
	for i := range 1000 {
		log.values("orders", 0, fmt.Sprint(i))
	}
	log.values("orders", 1, "1")
	log.values("orders", 2, "2")
	r := open(t, newHub(t, log, nil), session.Spec{Topics: names("orders")})
	met := map[string]bool{}
	for range 3 {
		page, err := r.Next(t.Context(), session.Limit{Records: 10, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words(t, page) {
			met[w] = true
		}
	}
	if !met["orders/1@0=1"] || !met["orders/2@0=2"] {
		t.Error("three pages of 10 records have nothing of the two short partitions")
	}
}

func TestSeek(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 1)
	log.values("orders", 0, "1", "2")
	r := open(t, newHub(t, log, nil), session.Spec{Topics: names("orders"), From: session.From{Kind: session.Latest}})
	bell := make(chan struct{}, 1)
	if err := r.Listen(bell); err != nil {
		t.Fatal(err)
	}
	if err := r.Seek(t.Context(), session.From{Kind: session.Earliest}); err != nil {
		t.Fatal(err)
	}
	expect(t, drain(t, r, wide), "orders/0@0=1", "orders/0@1=2")
	if err := r.Seek(t.Context(), session.From{Kind: session.Offsets, Offsets: map[topic.Partition]topic.Offset{7: 1}}); !fault.Is(err, fault.NoPartition) {
		t.Errorf("got %v, want NoPartition", err)
	}
	log.values("orders", 0, "3")
	<-bell // still hung up, once
	expect(t, drain(t, r, wide), "orders/0@2=3")
	if n := log.listeners(); n != 1 {
		t.Errorf("%d bells hang in the log, want 1", n)
	}
	r.Close()
	if n := log.listeners(); n != 0 {
		t.Errorf("%d bells are left after Close", n)
	}
}

func TestTroubleThatPasses(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 1)
	log.values("orders", 0, "1")
	r := open(t, newHub(t, log, nil), session.Spec{Topics: names("orders")})
	log.setTrouble(fault.Newf("fake", fault.NotLeader, nil, "not now"))
	if _, err := r.Next(t.Context(), wide); !fault.Is(err, fault.NotLeader) {
		t.Fatalf("got %v, want NotLeader", err)
	}
	log.setTrouble(nil)
	expect(t, drain(t, r, wide), "orders/0@0=1")
}

// Readers at the tail share what one of them fetched and encoded.
func TestTailIsShared(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 1)
	h := newHub(t, log, nil)
	readers := make([]*session.Reader, 50)
	for i := range readers {
		readers[i] = open(t, h, session.Spec{Topics: names("orders"), From: session.From{Kind: session.Latest}})
		if err := readers[i].Listen(make(chan struct{}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 20 {
		log.values("orders", 0, fmt.Sprint(round))
		for _, r := range readers {
			expect(t, drain(t, r, wide), fmt.Sprintf("orders/0@%d=%d", round, round))
		}
	}
	if n := log.fetched(); n > 20 {
		t.Errorf("50 readers of 20 batches fetched %d times, want 20 at most", n)
	}
}

// What readers share is not served any more after compaction took it away.
func TestCompactionReachesWhatIsShared(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 1)
	h := newHub(t, log, nil)
	for range 3 { // a crowd at the tail, so that encodings are kept
		r := open(t, h, session.Spec{Topics: names("orders")})
		if err := r.Listen(make(chan struct{}, 1)); err != nil {
			t.Fatal(err)
		}
		if len(drain(t, r, wide)) == 0 {
			log.values("orders", 0, "a")
			log.values("orders", 0, "b")
			log.values("orders", 0, "c")
			expect(t, drain(t, r, wide), "orders/0@0=a", "orders/0@1=b", "orders/0@2=c")
		}
	}
	fetched := log.fetched()
	expect(t, drain(t, open(t, h, session.Spec{Topics: names("orders")}), wide), "orders/0@0=a", "orders/0@1=b", "orders/0@2=c")
	if n := log.fetched(); n != fetched {
		t.Fatalf("nothing was shared: %d fetches, then %d", fetched, n)
	}
	log.compact("orders", 0, 0, 2)
	expect(t, drain(t, open(t, h, session.Spec{Topics: names("orders")}), wide), "orders/0@2=c")
}

// A reader that has passed what compaction left of a later reign has read up to there in that reign: its next
// fetch, and its cursor, are not taken for those of a log that was cut.
func TestCompactedReign(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 1)
	log.values("orders", 0, "a")
	log.cut("orders", 0, 1)
	log.values("orders", 0, "b")
	log.hollow("orders", 0, 1, 2)
	h := newHub(t, log, nil)
	spec := session.Spec{Topics: names("orders"), OnGap: session.GapError}
	r := open(t, h, spec)
	expect(t, drain(t, r, wide), "orders/0@0=a")
	spec.From = resume(t, r)
	log.values("orders", 0, "c")
	expect(t, drain(t, r, wide), "orders/0@2=c")
	expect(t, drain(t, open(t, h, spec), wide), "orders/0@2=c")

	log.cut("orders", 0, 3)
	log.values("orders", 0, "d")
	log.hollow("orders", 0, 3, 4)
	expect(t, drain(t, r, wide)) // nothing but what was left of the reign
	log.values("orders", 0, "e")
	expect(t, drain(t, r, wide), "orders/0@4=e")
}

// What is written when the encodings of others are shared must be what one encodes alone, in all formats.
func TestSharedAndOwnAreEqual(t *testing.T) {
	log := newFakeLog(t)
	log.create("orders", 2)
	rnd := rand.New(rand.NewPCG(3, 4))
	h := newHub(t, log, func(c *session.Config) { c.CacheBytes = 20 << 10 }) // evicts all the time
	var crowd []*session.Reader
	for i := range 6 {
		r := open(t, h, session.Spec{Topics: names("orders"), Format: session.Format{Shape: session.Shape(i % 3)}})
		if err := r.Listen(make(chan struct{}, 1)); err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, r)
	}
	got := make([]strings.Builder, len(crowd))
	read := func(i int, limit session.Limit) {
		page, err := crowd[i].Next(t.Context(), limit)
		if err != nil {
			t.Fatal(err)
		}
		for k := range page.Runs {
			if page.Runs[k].Partition == 1 {
				got[i].Write(page.Runs[k].Bytes())
			}
		}
		crowd[i].PassedAll(page)
	}
	for range 400 {
		var values []string
		for range 1 + rnd.IntN(4) {
			values = append(values, fmt.Sprintf(`{"n": %d,%s"x":"%s"}`, rnd.Int64(), "\n", strings.Repeat("y", rnd.IntN(300))))
		}
		log.values("orders", topic.Partition(rnd.IntN(2)), values...)
		for i := range crowd {
			if rnd.IntN(3) > 0 {
				read(i, session.Limit{Records: 1 + rnd.IntN(20), Bytes: 1 + rnd.IntN(4000)})
			}
		}
	}
	for i := range crowd {
		for range 400 {
			read(i, wide)
		}
		alone := open(t, h, session.Spec{Topics: names("orders"), Partitions: []topic.Partition{1}, Format: session.Format{Shape: session.Shape(i % 3)}})
		var want strings.Builder
		for {
			page, err := alone.Next(t.Context(), wide)
			if err != nil {
				t.Fatal(err)
			}
			for k := range page.Runs {
				want.Write(page.Runs[k].Bytes())
			}
			if page.AtEnd {
				break
			}
		}
		if got[i].String() != want.String() || want.Len() == 0 {
			t.Errorf("reader %d saw %d bytes, alone it would have been %d", i, got[i].Len(), want.Len())
		}
	}
}
