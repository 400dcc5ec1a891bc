package session

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/weirlog/weir/gateway/problem"
	"github.com/weirlog/weir/gateway/recordjson"
	"github.com/weirlog/weir/topic"
)

// producing is the produce frames of one WebSocket, which are stored one after the other, so that the
// order of frames is that of the log. A goroutine runs while there are any.
type producing struct {
	mu      sync.Mutex
	room    sync.Cond
	jobs    []*job
	bytes   int // of all frames that wait or are being stored
	running bool
	closed  bool
}

// job is one produce frame. It owns the frame's bytes.
type job struct {
	id    []byte
	frame *frameBuffer
	op    opFrame
}

func (q *producing) init() { q.room.L = &q.mu }

// put hands a frame over, when there is room. start is called when a goroutine is needed. It returns
// false when nothing is stored any more.
func (q *producing) put(j *job, most, mostBytes int, start func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := len(j.frame.b)
	for !q.closed && q.bytes > 0 && (len(q.jobs) >= most || q.bytes+size > mostBytes) {
		q.room.Wait()
	}
	if q.closed {
		return false
	}
	q.jobs = append(q.jobs, j)
	q.bytes += size
	if !q.running {
		q.running = true
		start()
	}
	return true
}

// next takes the next job, or returns nil: then the goroutine ends.
func (q *producing) next() *job {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.jobs) == 0 {
		q.running = false
		return nil
	}
	j := q.jobs[0]
	q.jobs[0] = nil
	if q.jobs = q.jobs[1:]; len(q.jobs) == 0 {
		q.jobs = nil
	}
	return j
}

func (q *producing) done(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= size
	q.room.Broadcast()
}

// close drops what waits. A job under way is finished by its goroutine, and answered to nobody.
func (q *producing) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, j := range q.jobs {
		q.bytes -= len(j.frame.b)
		j.frame.give()
	}
	q.jobs = nil
	q.room.Broadcast()
}

// store is the goroutine that stores the frames that wait.
func (p *peer) store() error {
	for {
		j := p.producing.next()
		if j == nil {
			return nil
		}
		size := len(j.frame.b)
		answer := p.storeOne(j)
		j.frame.give()
		p.producing.done(size)
		dst, at := beginFrame(nil)
		if !p.outbox.put(endFrame(append(dst, answer...), at, frameText)) {
			return nil
		}
		p.ring()
	}
}

// storeOne stores the records of one frame and returns the answer.
func (p *peer) storeOne(j *job) []byte {
	d := recordjson.TakeDecoder()
	defer d.Release()
	a, wait, err := p.readProduce(&j.op, d)
	if err == nil {
		ctx, cancel := context.WithTimeout(p.hub.ctx, wait)
		defer cancel()
		err = p.hub.producer.Produce(ctx, a)
	}
	if err != nil {
		return appendError(nil, j.id, "", err)
	}
	return appendProduced(appendReply(nil, j.id, "produced"), a)
}

// mostKey is the longest idempotency key.
const mostKey = 255

func (p *peer) readProduce(op *opFrame, d *recordjson.Decoder) (*topic.Append, time.Duration, error) {
	a := &topic.Append{Principal: topic.Anonymous}
	wait := p.hub.cfg.ProduceWait
	var name, acks string
	var ms int64
	for _, err := range []error{
		read(op.topic, "topic", &name, "a string"),
		read(op.acks, "acks", &acks, "a string"),
		read(op.key, "idempotency_key", &a.IdempotencyKey, "a string"),
		read(op.millis, "timeout_ms", &ms, "a number"),
	} {
		if err != nil {
			return nil, 0, err
		}
	}
	var err error
	if a.Topic, err = topic.ParseName(name); err != nil {
		return nil, 0, err
	}
	if a.Acks, err = topic.ParseAcks(acks); err != nil {
		return nil, 0, err
	}
	if given(op.key) && !saneKey(a.IdempotencyKey) {
		return nil, 0, invalid("idempotency_key must be 1 to %d visible ASCII characters", mostKey)
	}
	if given(op.millis) {
		const most = 5 * time.Minute
		if ms < 1 || ms > most.Milliseconds() {
			return nil, 0, invalid("timeout_ms must be from 1 to %d", most.Milliseconds())
		}
		wait = time.Duration(ms) * time.Millisecond
	}
	if !given(op.records) {
		return nil, 0, invalid("records is required")
	}
	if a.Records, err = d.Array(op.records, p.hub.cfg.MaxRecords); err != nil {
		return nil, 0, err
	}
	a.Results = make([]topic.Stored, len(a.Records))
	return a, wait, nil
}

func saneKey(key string) bool {
	if key == "" || len(key) > mostKey {
		return false
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] >= 0x7f {
			return false
		}
	}
	return true
}

// appendProduced writes what became of each record.
func appendProduced(dst []byte, a *topic.Append) []byte {
	dst = append(dst, `,"results":[`...)
	if a.Acks != topic.AcksNone {
		for i := range a.Results {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendStored(dst, &a.Results[i])
		}
	}
	return append(dst, "]}"...)
}

func appendStored(dst []byte, s *topic.Stored) []byte {
	if s.Err != nil {
		p := problem.Of(s.Err)
		dst = append(dst, `{"status":`...)
		dst = strconv.AppendInt(dst, int64(p.Status), 10)
		if s.Partition != topic.AnyPartition {
			dst = append(dst, `,"partition":`...)
			dst = strconv.AppendInt(dst, int64(s.Partition), 10)
		}
		dst = append(dst, `,"error":`...)
		return append(p.AppendShort(dst), '}')
	}
	dst = append(dst, `{"status":200,"partition":`...)
	dst = strconv.AppendInt(dst, int64(s.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, int64(s.Offset), 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, int64(s.Timestamp), 10)
	if s.Duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	return append(dst, '}')
}

// appendError writes an error that answers a frame, or ends a subscription.
func appendError(dst, id []byte, sub string, err error) []byte {
	dst = appendReply(dst, id, "error")
	if sub != "" {
		dst = append(dst, `,"sub":`...)
		dst = problem.AppendString(dst, sub)
	}
	p := problem.Of(err)
	dst = append(dst, `,"problem":`...)
	return append(p.AppendShort(dst), '}')
}
