package quorum

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirlog/weir/broker/cluster"
	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a quorum that runs.
type node struct {
	*Quorum
	t    *testing.T
	stop context.CancelFunc
	done chan error
}

// launch opens and runs a quorum and waits until it is ready.
func launch(t *testing.T, cfg Config) *node {
	t.Helper()
	q, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := runIt(t, q)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := n.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

func runIt(t *testing.T, q *Quorum) *node {
	ctx, stop := context.WithCancel(context.Background())
	n := &node{Quorum: q, t: t, stop: stop, done: make(chan error, 1)}
	go func() { n.done <- q.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-n.done:
		case <-time.After(20 * time.Second):
			t.Error("Run did not return")
		}
	})
	return n
}

// end stops the quorum and returns what Run said.
func (n *node) end() error {
	n.t.Helper()
	n.stop()
	return n.wait()
}

func (n *node) wait() error {
	n.t.Helper()
	select {
	case err := <-n.done:
		n.done <- err
		return err
	case <-time.After(20 * time.Second):
		n.t.Fatal("Run did not return")
		return nil
	}
}

func (n *node) must(op cluster.Op) cluster.Result {
	n.t.Helper()
	result, err := n.Propose(n.t.Context(), cluster.Command{Op: op})
	if err != nil {
		n.t.Fatalf("%#v: %v", op, err)
	}
	return result
}

func (n *node) create(name string) *cluster.Topic {
	n.t.Helper()
	return n.must(cluster.CreateTopic{ID: topic.NewID(), Name: topic.Name(name), Partitions: 2, Replication: 1, Creator: topic.Anonymous, At: 1}).Topic
}

func TestItElectsItselfAtOnceAndSaysWhatItKnows(t *testing.T) {
	begun := time.Now()
	n := launch(t, Config{Dir: filepath.Join(t.TempDir(), "raft"), Node: 1, Found: true})
	first := time.Since(begun)
	if n.ClusterID() == "" || n.Image().ClusterID() != n.ClusterID() || n.Incarnation() != 1 {
		t.Errorf("cluster %q, in the image %q, incarnation %d", n.ClusterID(), n.Image().ClusterID(), n.Incarnation())
	}
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	launch(t, Config{Dir: n.cfg.Dir, Node: 1, ClusterID: n.ClusterID()})
	second := time.Since(begun)
	t.Logf("ready after %v, and %v after a restart", first, second)
	// Without the order to stand for election it takes at least the heartbeat timeout.
	if limit := raftConfig(1).HeartbeatTimeout / 2; first > limit || second > limit {
		t.Errorf("ready after %v and %v", first, second)
	}
}

func TestTheTransportKeepsPreVote(t *testing.T) {
	var trans raft.Transport = newTransport("1")
	if _, ok := trans.(raft.WithPreVote); !ok {
		t.Error("raft does not see pre-vote and switches it off")
	}
	if raftConfig(1).PreVoteDisabled {
		t.Error("pre-vote is off")
	}
	if _, err := trans.AppendEntriesPipeline("2", "2"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Errorf("pipelining: %v", err)
	}
}

func TestARestartKeepsTopicsAndBeginsNewReigns(t *testing.T) {
	dir := t.TempDir()
	n := launch(t, Config{Dir: dir, Node: 1, Found: true})
	made := n.create("orders")
	five := "5000"
	n.must(cluster.AlterTopic{ID: made.ID, Settings: map[string]*string{"retention.ms": &five}})
	n.must(cluster.PutEntry{Kind: "acl", Name: "ann", Value: []byte("read")})
	for start := topic.Incarnation(2); start <= 4; start++ {
		if err := n.end(); err != nil {
			t.Fatal(err)
		}
		n = launch(t, Config{Dir: dir, Node: 1, ClusterID: n.ClusterID()})
		got, ok := n.Image().Topic("orders")
		if !ok || got.ID != made.ID || got.Overrides["retention.ms"] != "5000" {
			t.Fatalf("the topic came back as %+v", got)
		}
		for _, p := range got.Partitions {
			if p.Leader != 1 || p.Epoch != topic.Epoch(start-1) || p.Changes != topic.PartitionEpoch(start-1) {
				t.Errorf("start %d: partition %+v", start, p)
			}
		}
		if n.Incarnation() != start {
			t.Errorf("incarnation %d in start %d", n.Incarnation(), start)
		}
		if e, ok := n.Image().Entry("acl", "ann"); !ok || string(e.Value) != "read" {
			t.Errorf("the entry came back as %+v", e)
		}
	}
}

func TestProposalsThatWaitTogetherAreCommittedTogether(t *testing.T) {
	registry := prometheus.NewRegistry()
	n := launch(t, Config{Dir: t.TempDir(), Node: 1, Found: true, Metrics: registry})
	const callers, each = 32, 20
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				name := topic.Name(fmt.Sprintf("t-%d-%d", c, i))
				r, err := n.Propose(t.Context(), cluster.Command{Op: cluster.CreateTopic{ID: topic.NewID(), Name: name, Partitions: 1, Replication: 1}})
				if err != nil {
					t.Error(err)
					return
				}
				if got, ok := n.Image().Topic(name); !ok || got.ID != r.Topic.ID {
					t.Errorf("%s is not in the image after its proposal returned", name)
				}
			}
		})
	}
	wg.Wait()
	if got := n.Image().TopicCount(); got != callers*each {
		t.Errorf("%d topics, want %d", got, callers*each)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			seen[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	if taken := seen["cluster_proposals_total create_topic taken"]; taken != callers*each {
		t.Errorf("%v proposals were counted", taken)
	}
	t.Logf("%d proposals in %v commits", callers*each, seen["cluster_commit_seconds"])
	if commits := seen["cluster_commit_seconds"]; commits > callers*each/2 {
		t.Errorf("%v commits for %d proposals", commits, callers*each)
	}
	if seen["cluster_topics"] != callers*each || seen["cluster_log_bytes"] == 0 {
		t.Errorf("gauges: %v", seen)
	}
}

func TestRefusalsAndRepeatsComeBackThroughTheLog(t *testing.T) {
	n := launch(t, Config{Dir: t.TempDir(), Node: 1, Found: true})
	c := cluster.Command{ID: cluster.CommandID{1}, Op: cluster.CreateTopic{ID: topic.NewID(), Name: "orders", Partitions: 1, Replication: 1}}
	for repeated := range 2 {
		r, err := n.Propose(t.Context(), c)
		if err != nil || r.Repeated != (repeated == 1) || r.Topic == nil {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	c.ID = cluster.CommandID{2}
	if _, err := n.Propose(t.Context(), c); !fault.Is(err, fault.TopicExists) {
		t.Errorf("another command of the same content: %v", err)
	}
	if err := n.Barrier(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWatchersSeeEachImage(t *testing.T) {
	n := launch(t, Config{Dir: t.TempDir(), Node: 1, Found: true})
	image, changed := n.Watch()
	n.create("orders")
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("nobody was told")
	}
	if d := n.Image().Since(image); len(d.Changed) != 1 || d.Changed[0].Name != "orders" {
		t.Errorf("changed: %v", d.Changed)
	}
}

func TestAProposalThatIsNotSentIsRefused(t *testing.T) {
	q, err := Open(Config{Dir: t.TempDir(), Node: 1, Found: true})
	if err != nil {
		t.Fatal(err)
	}
	op := cluster.Command{Op: cluster.RegisterNode{Node: 7}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := q.Propose(ctx, op); !fault.Is(err, fault.NotLeader) {
		t.Errorf("before it runs: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := q.Propose(ctx, op); !fault.Is(err, fault.Closed) {
		t.Errorf("canceled: %v", err)
	}
	if err := q.Ready(); !fault.Is(err, fault.NotLeader) {
		t.Errorf("Ready before it runs: %v", err)
	}
	n := runIt(t, q)
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Barrier(t.Context()); err != nil { // behind what was left in the queue
		t.Fatal(err)
	}
	if _, ok := n.Image().Node(7); ok {
		t.Error("an abandoned proposal took effect")
	}
	if err := n.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Propose(t.Context(), op); !fault.Is(err, fault.Stopping) {
		t.Errorf("after the end: %v", err)
	}
	if err := n.Ready(); !fault.Is(err, fault.Stopping) {
		t.Errorf("Ready after the end: %v", err)
	}
	if err := q.Run(t.Context()); !fault.Is(err, fault.Closed) {
		t.Errorf("a second run: %v", err)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		q, err := Open(Config{Dir: dir, Node: 1, Found: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMistakesOfAConfigAreReportedAtOnce(t *testing.T) {
	_, err := Open(Config{DiskLimit: -1})
	for _, name := range []string{"Dir", "Node", "DiskLimit"} {
		if !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}

func TestRaftsLinesReachOurLogger(t *testing.T) {
	var out bytes.Buffer
	front := bridge(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	front.With("node", 1).Error("failed to do it", "error", errors.New("no"), "servers", []any{})
	front.Info("entering leader state")
	if got := out.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "node=1") || !strings.Contains(got, "err=no") ||
		!strings.Contains(got, "level=DEBUG msg=\"entering leader state\"") {
		t.Errorf("logged: %s", got)
	}
}

// copyDir copies the files as they are, as a process that was killed leaves them.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "raft")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}
