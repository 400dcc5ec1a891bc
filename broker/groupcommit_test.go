package broker

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

// heldGroups is a node whose syncs of __groups a test can hold up, in fake time.
type heldGroups struct {
	*running
	hold atomic.Pointer[chan struct{}]
}

func beginHeld(t *testing.T) *heldGroups {
	t.Helper()
	fsys := &slowFS{FS: newMem(t)}
	h := &heldGroups{}
	var dir atomic.Pointer[string]
	fsys.sync = func(name string) {
		if hold, d := h.hold.Load(), dir.Load(); hold != nil && d != nil && isLog(name) && strings.Contains(name, *d) {
			<-*hold
		}
	}
	h.running = begin(t, fsys, newOneNode(), testConfig("data"))
	h.fill("orders", 2, 9)
	h.join("warm", "up").end()
	id := topicID(t, h.running, groupsTopic)
	d := hex.EncodeToString(id[:])
	dir.Store(&d)
	return h
}

// holding holds up the syncs until the returned func is called.
func (h *heldGroups) holding() (release func()) {
	hold := make(chan struct{})
	h.hold.Store(&hold)
	return func() {
		h.hold.Store(nil)
		close(hold)
	}
}

// neighbour is a group that shares the partition of another.
func neighbour(g topic.GroupName) topic.GroupName {
	for i := 0; ; i++ {
		if n := topic.GroupName(fmt.Sprint(g, "-", i)); keyed([]byte(n), groupPartitions) == keyed([]byte(g), groupPartitions) {
			return n
		}
	}
}

// TestGroupAnswersWait: until a change is committed nobody hears of it, neither its caller, nor a poll that
// waits, nor a call that changes nothing itself. Other groups go on.
func TestGroupAnswersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHeld(t)
		a := h.join("g", "a")
		other := h.join(neighbour("g"), "m")
		other.end()

		release := h.holding()
		joined := make(chan *member)
		go func() { joined <- h.join("g", "b") }()
		synctest.Wait()
		a.asleep("what another has done is not committed")
		select {
		case <-joined:
			t.Error("the answer came before the commit")
		default:
		}
		for what, call := range map[string]func(context.Context) error{
			"a look": func(ctx context.Context) error { _, err := h.DescribeGroup(ctx, "g"); return err },
			"a list": func(ctx context.Context) error { _, err := h.ListGroups(ctx, "", 10); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			wantKind(t, what+" at what is not committed", call(ctx), fault.Loading)
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := h.SeekGroup(ctx, &topic.GroupSeek{Group: "g", Topics: []topic.Name{"orders"}})
		wantKind(t, "a change that is not acknowledged", err, fault.Timeout)
		cancel()
		begun := time.Now()
		if err := other.poll(nil); err != nil || time.Since(begun) != 0 {
			t.Errorf("another group: %v after %v", err, time.Since(begun))
		}
		other.end()
		release()
		b := <-joined
		a.woken("b has joined")
		b.end()
		h.stop()
	})
}

// TestGroupLoadsCommitted: a reign that begins while records wait for the disk reads them only when they
// are committed.
func TestGroupLoadsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHeld(t)
		h.join("g", "a").end()
		c := h.coordinatorOf("g")
		release := h.holding()
		joined := make(chan error)
		go func() {
			b := &member{r: h.running, group: "g", name: "b"}
			joined <- b.poll(func(p *topic.GroupPoll) { p.Subscription = &topic.Subscription{Topics: []topic.Name{"orders"}} })
		}()
		synctest.Wait()
		result := h.cluster.apply(cluster.RaiseEpoch{Partition: c.p.ref, By: 1, Incarnation: h.cluster.Incarnation(), Above: topic.Epoch(c.p.epoch.Load())})
		if result.Err != nil {
			t.Fatal(result.Err)
		}
		wantKind(t, "the join", <-joined, fault.Timeout)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := h.DescribeGroup(ctx, "g")
		wantKind(t, "a look", err, fault.Loading)
		cancel()
		release()
		d, err := h.DescribeGroup(t.Context(), "g")
		if err != nil || len(d.Members) != 2 {
			t.Errorf("%+v, %v", d, err)
		}
		h.stop()
	})
}

// TestGroupQueueIsBounded: when too much waits to be committed, calls are refused before they decide.
func TestGroupQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := beginHeld(t)
		m := h.join("g", "m")
		m.end()
		ref := m.Assignment[0].Ref
		release := h.holding()
		const calls = 600
		outcomes := make(chan error, calls)
		for i := range calls {
			go func() {
				_, err := h.PollGroup(context.Background(), &topic.GroupPoll{
					Group: "g", Member: "m", Epoch: m.Epoch, Heartbeat: true,
					Ack: []topic.GroupCommit{{Ref: ref, Next: 4, LastEpoch: topic.NoEpoch, Metadata: strings.Repeat(fmt.Sprintf("%04d", i), topic.MaxCommitMetadata/4)}},
				})
				outcomes <- err
			}()
		}
		synctest.Wait()
		c := h.coordinatorOf("g")
		c.mu.Lock()
		waiting := len(c.queue)
		c.mu.Unlock()
		if waiting < 2 || waiting > mostFlights+1 {
			t.Errorf("%d flights wait", waiting)
		}
		release()
		for range calls {
			if err := <-outcomes; err != nil {
				t.Error(err)
			}
		}
		c.mu.Lock()
		for range mostFlights + 1 {
			c.queue = append(c.queue, &flight{done: make(chan struct{}), under: true})
		}
		c.mu.Unlock()
		wantKind(t, "a call when too much waits", m.ack(5), fault.Overloaded)
		c.mu.Lock()
		c.queue = nil
		c.mu.Unlock()
		h.stop()
	})
}
