//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	killGroup      = "the killed ones"
	killPartitions = 8
	killSession    = 3 * time.Second
)

// TestAGroupLosesNothingWhenItsMembersAndItsNodeDie rebalances a group again and again, by members that are
// killed, stopped for longer than their session, taken over by name, or leave, while producers are at work
// and the node itself is killed. In the end everything is read and acknowledged, and what each member was
// told is compared: see verifyGroup.
func TestAGroupLosesNothingWhenItsMembersAndItsNodeDie(t *testing.T) {
	rebalances, kills := 10, 2
	switch {
	case soak():
		rebalances, kills = 100, 20
	case raceEnabled:
		rebalances = 6
	}
	seed := rand.Uint64()
	t.Logf("seed %d, %d rebalances, %d kills of the node", seed, rebalances, kills)
	k := &groupKill{t: t, dir: t.TempDir(), seed: seed}
	data := filepath.Join(k.dir, "data")
	start := func() *node {
		n := serve(t, "--data", data, "--set", "groups.max_poll_interval="+killSession.String(), "--set", "groups.session_timeout="+killSession.String(), "--set", "storage.stall=1m")
		k.moved(n.base)
		return n
	}
	n := start()
	must(t, http.MethodPost, n.base+"/v1/topics", fmt.Sprintf(`{"name":%q,"partitions":%d,"settings":{"segment.bytes":262144}}`, killTopic, killPartitions), nil, "Content-Type", "application/json")

	producers := killProducers(seed)
	stop, abandon := make(chan struct{}), make(chan struct{})
	var producing sync.WaitGroup
	for _, p := range producers {
		p.every = 40 * time.Millisecond
		producing.Go(func() { p.work(&k.base, stop, abandon) })
	}
	for i := range 6 {
		k.slots = append(k.slots, &memberSlot{name: memberName(i)})
		if err := k.launch(k.slots[i]); err != nil {
			t.Fatal(err)
		}
	}

	// Two hands at once, each with members of its own; the last member is left alone.
	var done atomic.Int64
	hands := make(chan error, 2)
	for hand := range 2 {
		rng := rand.New(rand.NewPCG(seed, uint64(1000+hand)))
		mine := k.slots[hand*3 : min(hand*3+3, len(k.slots)-1)]
		go func() {
			for range rebalances / 2 {
				if err := k.rebalance(rng, mine[rng.IntN(len(mine))]); err != nil {
					hands <- err
					return
				}
				done.Add(1)
			}
			hands <- nil
		}()
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	killed, working := 0, 2
	for working > 0 {
		select {
		case err := <-hands:
			if err != nil {
				t.Fatalf("%v\n%s", err, n.stderr)
			}
			working--
		case <-time.After(time.Duration(rng.Int64N(int64(200 * time.Millisecond)))):
			if killed < kills && done.Load()*int64(kills+1) >= int64(rebalances*(killed+1)) {
				n.kill()
				calm(t, n)
				n = start()
				killed++
			}
		}
	}
	for ; killed < kills; killed++ {
		n.kill()
		calm(t, n)
		n = start()
	}
	close(stop)
	if !ends(&producing, time.Minute) {
		close(abandon)
		producing.Wait()
		t.Fatal("a producer's repeated request was not answered within a minute")
	}
	for _, s := range k.slots {
		if !s.alive() {
			t.Fatalf("%s ended by itself: %v, %s", s.name, s.err, s.journals[len(s.journals)-1])
		}
	}
	ends := k.drained(n)
	for _, s := range k.slots {
		if err := s.signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code, err := s.ended(); err != nil || code != memberLeft {
			t.Errorf("%s ended with %d, %v", s.name, code, err)
		}
	}
	if d := describeGroup(t, n.base, killGroup); len(d.Members) != 0 || d.State != "empty" {
		t.Errorf("everybody has left, and the group is %s with %v", d.State, d.Members)
	}
	verifyKilled(t, n.base, producers, killPartitions)
	h := &groupHistory{t: t, fail: t.Errorf, log: map[int][]string{}, ends: ends, session: killSession}
	for p := range killPartitions {
		for _, r := range readAll(t, n.base, killTopic, p) {
			h.log[p] = append(h.log[p], string(shortened(json.RawMessage(`"`+r.Value+`"`))))
		}
	}
	for _, s := range k.slots {
		for _, journal := range s.journals {
			h.read(journal)
		}
	}
	v := verifyGroup(h)
	t.Logf("%d processes; calls: ok %d, refused %d, unknown %d; %d records, given %d times, %d of them again",
		len(h.runs), v.calls[stored], v.calls[refused], v.calls[unknown], v.records, v.given, v.twice)
	if v.records == 0 || v.calls[stored] == 0 || soak() && (v.calls[refused] == 0 || v.calls[unknown] == 0) {
		t.Error("not everything happened that was to be tested")
	}
	if err := n.stop(t); err != nil {
		t.Fatalf("the node ended with %v: %s", err, n.stderr)
	}
	calm(t, n)
	dumpAll(t, data)
}

// ends waits for a group of goroutines, but not for ever.
func ends(wg *sync.WaitGroup, most time.Duration) bool {
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
		return true
	case <-time.After(most):
		return false
	}
}

// groupKill is what the hands of the test share.
type groupKill struct {
	t     *testing.T
	dir   string
	seed  uint64
	base  atomic.Pointer[string]
	slots []*memberSlot
}

// moved tells producers, members and hands where the node is now.
func (k *groupKill) moved(base string) {
	k.t.Helper()
	file := filepath.Join(k.dir, "base")
	if err := errors.Join(os.WriteFile(file+".new", []byte(base), 0o644), os.Rename(file+".new", file)); err != nil {
		k.t.Fatal(err)
	}
	k.base.Store(&base)
}

// memberSlot is a name in the group and the process that has it. One goroutine at a time uses it.
type memberSlot struct {
	name     string
	journals []string
	*memberRun
}

// memberRun is one process.
type memberRun struct {
	cmd    *exec.Cmd
	joined chan struct{}
	gone   chan struct{} // closed when the process has ended; err says how
	err    error
}

// launch starts a process for the slot and waits until it has joined.
func (k *groupKill) launch(s *memberSlot) error {
	journal := filepath.Join(k.dir, fmt.Sprintf("%s.%d", s.name, len(s.journals)))
	config, err := json.Marshal(memberConfig{
		BaseFile: filepath.Join(k.dir, "base"), Journal: journal, Group: killGroup, Member: s.name, Topic: killTopic,
		Seed: k.seed + uint64(len(s.journals)),
	})
	if err != nil {
		return err
	}
	r := &memberRun{cmd: exec.Command(os.Args[0]), joined: make(chan struct{}), gone: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), asMember+"="+string(config))
	r.cmd.Stderr = os.Stderr
	stdin, err := r.cmd.StdinPipe() // the process ends when it closes, so with this test
	if err != nil {
		return err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	k.t.Cleanup(func() { _ = r.signal(syscall.SIGKILL) }) // an error means that it is gone already
	go func() {
		if in := bufio.NewScanner(stdout); in.Scan() {
			close(r.joined)
		}
		_, _ = io.Copy(io.Discard, stdout) // up to its end
		r.err = r.cmd.Wait()
		_ = stdin.Close()
		close(r.gone)
	}()
	s.journals = append(s.journals, journal)
	s.memberRun = r
	select {
	case <-r.joined:
		return nil
	case <-r.gone:
		return fmt.Errorf("%s ended before it had joined: %w", journal, r.err)
	case <-time.After(time.Minute):
		return fmt.Errorf("%s did not join within a minute", journal)
	}
}

func (r *memberRun) signal(s os.Signal) error { return r.cmd.Process.Signal(s) }

func (r *memberRun) alive() bool {
	select {
	case <-r.gone:
		return false
	default:
		return true
	}
}

// ended waits for the end of the process and returns its code, -1 after a signal.
func (r *memberRun) ended() (int, error) {
	select {
	case <-r.gone:
		return r.cmd.ProcessState.ExitCode(), nil
	case <-time.After(time.Minute):
		return 0, fmt.Errorf("process %d does not end", r.cmd.Process.Pid)
	}
}

// rebalance does one thing to a member that changes who reads what, and waits until it is a member again.
func (k *groupKill) rebalance(rng *rand.Rand, s *memberSlot) error {
	if !s.alive() {
		return fmt.Errorf("%s ended by itself: %w, %s", s.name, s.err, s.journals[len(s.journals)-1])
	}
	<-time.After(time.Duration(rng.Int64N(int64(300 * time.Millisecond)))) // in the middle of whatever it does
	var err error
	switch way := rng.IntN(10); {
	case way < 3:
		err = k.killMember(s, true)
	case way < 5:
		err = k.killMember(s, false)
	case way < 7:
		err = k.stopMember(rng, s)
	case way < 9:
		err = k.usurp(s)
	default:
		err = k.sendAway(s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// killMember ends the process, and starts another one under its name: at once, or when the session is over
// and its partitions are others'.
func (k *groupKill) killMember(s *memberSlot, late bool) error {
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if _, err := s.ended(); err != nil {
		return err
	}
	if late {
		if err := k.awaitMember(s.name, false); err != nil {
			return err
		}
	}
	return k.launch(s)
}

// stopMember stops the process, perhaps for a little while only and then until its session is over, and
// lets it go on: it does not know that it was away.
func (k *groupKill) stopMember(rng *rand.Rand, s *memberSlot) error {
	if rng.IntN(2) == 0 {
		if err := s.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		<-time.After(time.Duration(rng.Int64N(int64(killSession / 2))))
		if err := s.signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	gone := k.awaitMember(s.name, false)
	if err := errors.Join(gone, s.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	return k.awaitMember(s.name, true)
}

// usurp stops the process and starts another one under its name. The elder is told when it goes on.
func (k *groupKill) usurp(s *memberSlot) error {
	elder := s.memberRun
	if err := elder.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	taken := k.launch(s)
	if err := errors.Join(taken, elder.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	code, err := elder.ended()
	if err == nil && code != memberFenced {
		err = fmt.Errorf("its name was taken over, and the elder process ended with code %d", code)
	}
	return err
}

// sendAway has the member leave in order.
func (k *groupKill) sendAway(s *memberSlot) error {
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	code, err := s.ended()
	if err == nil && code != memberLeft {
		err = fmt.Errorf("it was to leave, and ended with code %d", code)
	}
	if err != nil {
		return err
	}
	if err := k.awaitMember(s.name, false); err != nil {
		return err
	}
	return k.launch(s)
}

// awaitMember waits until the group has a member of this name, or has none. Its session may have begun anew
// with each start of the node.
func (k *groupKill) awaitMember(name string, there bool) error {
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		d, err := tryDescribe(*k.base.Load(), killGroup)
		if err != nil {
			last = err.Error()
			continue
		}
		if _, is := d.member(name); is == there {
			return nil
		}
		last = fmt.Sprintf("%+v", d)
	}
	return fmt.Errorf("a minute has gone, and whether the group has it as a member is still not %v: %s", there, last)
}

// drained waits until everything that is in the topic is acknowledged and the group is calm, and returns
// the ends of the partitions.
func (k *groupKill) drained(n *node) map[int]int64 {
	k.t.Helper()
	var d groupState
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		d = describeGroup(k.t, n.base, killGroup)
		ends := map[int]int64{}
		for _, p := range d.Partitions {
			if p.Committed != nil && p.End != nil && *p.Committed == *p.End {
				ends[p.Partition] = *p.End
			}
		}
		if d.State == "stable" && d.Lag != nil && *d.Lag == 0 && len(ends) == killPartitions {
			return ends
		}
	}
	text, err := json.MarshalIndent(d, "", " ")
	k.t.Fatalf("the group is stuck: %s, %v\n%s", text, err, n.stderr)
	return nil
}
