package broker

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/topic"
)

// together has calls to one partition be taken by its owner at once, in their order.
func (r *running) together(ref topic.Ref, calls ...*topic.Append) {
	r.t.Helper()
	p, err := r.hall.partition(ref)
	if err != nil {
		r.t.Fatal(err)
	}
	hold, held := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.ask(context.Background(), func() { close(held); <-hold }); err != nil {
			r.t.Error(err)
		}
	})
	<-held
	for i, a := range calls {
		wg.Go(func() {
			if err := r.Produce(context.Background(), a); err != nil {
				r.t.Error(err)
			}
		})
		r.await("the call is queued", func() bool {
			p.inbox.mu.Lock()
			defer p.inbox.mu.Unlock()
			return len(p.inbox.waiting) > i
		})
	}
	close(hold)
	wg.Wait()
}

// TestRefusedWithItsRetry: when the disk takes no more, a retry that came in time to share the write of the
// first try is refused with it. What it would be a duplicate of is not in the log, and its offset goes to
// another record. Nor is the key used, or the log moved on, for those who came with them.
func TestRefusedWithItsRetry(t *testing.T) {
	for _, acks := range []topic.Acks{topic.AcksAll, topic.AcksLeader} {
		t.Run(acks.String(), func(t *testing.T) {
			failing := vfs.NewFailing(newMem(t))
			r := begin(t, failing, newOneNode(), testConfig("data"))
			d := r.create("orders", 1)
			r.produce("orders", to(0, "before"))
			failing.Plan(vfs.Fault{Ops: vfs.OpWrite, Match: "*.log", Err: syscall.ENOSPC})
			first, retry := keyedAppend("k", to(0, "v")), keyedAppend("k", to(0, "v"))
			first.Acks, retry.Acks = acks, acks
			other, changed, last := appendTo("orders", acks, "w"), keyedAppend("k", to(0, "x")), appendTo("orders", acks, "y")
			last.IfLast = new(topic.Offset)
			done := make(chan struct{})
			go func() {
				defer close(done)
				r.together(topic.Ref{ID: d.ID}, first, retry, other, changed, last)
			}()
			// A retry that wrongly waits for the offset is answered when somebody else's record gets it.
			r.await("the write was refused", func() bool { return failing.Fired() > 0 })
			r.produce("orders", to(0, "after"))
			<-done
			for _, a := range []*topic.Append{first, retry, other, changed, last} {
				if s := a.Results[0]; !fault.Is(s.Err, fault.StorageFull) || s.Offset != topic.NoOffset || s.Duplicate {
					t.Errorf("%+v", s)
				}
			}
			if s := r.try(keyedAppend("k", to(0, "v")))[0]; s.Err != nil || s.Duplicate || s.Offset != 2 {
				t.Errorf("once more: %+v", s)
			}
			r.stop()
		})
	}
}

// TestNoRoomForANewTopic: a disk without room for another directory or file does not end the node. The topic's
// partition opens as soon as there is room.
func TestNoRoomForANewTopic(t *testing.T) {
	for _, match := range []string{"?", "????????????????????????????????"} { // of the partition, of the topic
		for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
			t.Run(match, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					failing := vfs.NewFailing(newMem(t))
					r := begin(t, failing, newOneNode(), testConfig("data"))
					failing.Plan(vfs.Fault{Ops: vfs.OpMkdirAll, Match: match, Err: full, Forever: true})
					r.create("orders", 1)
					if failing.Fired() == 0 {
						t.Fatal("nothing failed")
					}
					a := appendTo("orders", topic.AcksAll, "v")
					if err := r.Produce(t.Context(), a); err != nil || !fault.Is(a.Results[0].Err, fault.NotLeader) {
						t.Errorf("%v, %+v", err, a.Results)
					}
					failing.Plan()
					time.Sleep(2 * reopenEvery)
					r.produce("orders", to(0, "v"))
					r.stop()
				})
			})
		}
	}
}

// TestTimestampAhead: the refusal says how far ahead is too far, whatever the number.
func TestTimestampAhead(t *testing.T) {
	r, _ := beginMem(t)
	r.create("orders", 1)
	for _, ahead := range []topic.Millis{topic.Millis(time.Now().Add(2 * time.Hour).UnixMilli()), math.MaxInt64} {
		record := to(0, "v")
		record.Timestamp = ahead
		a := &topic.Append{Topic: "orders", Acks: topic.AcksAll, Principal: topic.Anonymous, Records: []topic.Record{record}}
		if err := r.Produce(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("timestamp %d is more than 1h0m0s ahead", ahead)
		if err := a.Results[0].Err; !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", ahead, err)
		}
	}
	r.stop()
}
