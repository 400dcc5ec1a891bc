package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

const mebibyte = 1 << 20

func nodeRows() []row {
	return []row{
		{id: "P17/idle", what: "memory of an idle node with 1,000 partitions, against the limit of 150 MB", unit: "MB", target: 1, atMost: true, setup: idleNode},
		{id: "P17/subscribers", what: "memory that 5,000 idle WebSocket subscribers add, against the limit of 200 MB", unit: "MB", target: 1, atMost: true, setup: idleSubscribers},
		{id: "P18/alter", what: "settings changes, 64 callers, 1,000 topics, against bare raft on bbolt with 64 appliers", unit: "changes/s", target: 0.5, setup: alterTopics},
		{id: "P18/create", what: "create a topic, one caller, against three syncs and a bare raft apply", unit: "ms", target: 2, atMost: true, setup: createTopics},
		{id: "P21", what: "start to ready of an empty node, more than the start of the process (weir version)", unit: "ms", target: 300, atMost: true, difference: true, setup: startToReady},
	}
}

func constant(v float64) func(context.Context) (float64, error) {
	return func(context.Context) (float64, error) { return v, nil }
}

func idleNode(ctx context.Context, b *bench) (sides, error) {
	p, err := b.startWeir(ctx)
	if err != nil {
		return sides{}, err
	}
	if err := createTopic(p, "wide", 1000, ""); err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			bytes, err := p.memory()
			return bytes / mebibyte, err
		},
		reference: constant(150), stop: p.stop,
	}, nil
}

func idleSubscribers(ctx context.Context, b *bench) (sides, error) {
	p, err := b.startWeir(ctx)
	if err != nil {
		return sides{}, err
	}
	if err := createTopic(p, "bench", 1, ""); err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	before, err := p.memory()
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	a, err := subscribe(p.addr, "/v1/topics/bench/ws?from=latest", 5000)
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			now, err := p.memory()
			return (now - before) / mebibyte, errors.Join(err, a.failed())
		},
		reference: constant(200),
		stop:      func() error { return errors.Join(a.close(), p.stop()) },
	}, nil
}

// call sends one small request and checks its status.
func call(client *http.Client, method, url, body string, want int) error {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return err
}

// concurrently calls once from so many goroutines for a span and returns calls a second.
func concurrently(ctx context.Context, callers int, span time.Duration, once func(n int64) error) (float64, error) {
	var calls atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	began := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(began) < span && ctx.Err() == nil {
				if err := once(calls.Add(1)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	select {
	case err := <-errs:
		return 0, err
	default:
		return float64(calls.Load()) / took.Seconds(), ctx.Err()
	}
}

func alterTopics(ctx context.Context, b *bench) (sides, error) {
	const topics, callers = 1000, 64
	p, err := b.startWeir(ctx)
	if err != nil {
		return sides{}, err
	}
	for i := range topics {
		if err := createTopic(p, fmt.Sprintf("t%d", i), 1, ""); err != nil {
			return sides{}, errors.Join(err, p.stop())
		}
	}
	r, err := newBareRaft(b)
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	// Each caller goes over topics of its own, and comes back to one with another value each time.
	load, err := dialLoad(p.addr, callers, func(i int) (all [][]byte) {
		for _, ms := range []int{600_000_000, 700_000_000} {
			for t := i; t < topics; t += callers {
				all = append(all, send(http.MethodPatch, p.addr, fmt.Sprintf("/v1/topics/t%d", t), fmt.Appendf(nil, `{"settings":{"retention.ms":"%d"}}`, ms)))
			}
		}
		return all
	})
	if err != nil {
		return sides{}, errors.Join(err, r.close(), p.stop())
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) { return load.run(ctx, b.span) },
		reference: func(ctx context.Context) (float64, error) {
			command := make([]byte, 64)
			return concurrently(ctx, callers, b.span, func(int64) error { return r.apply(command) })
		},
		stop: func() error { return errors.Join(load.close(), r.close(), p.stop()) },
	}, nil
}

func createTopics(ctx context.Context, b *bench) (sides, error) {
	p, err := b.startWeir(ctx)
	if err != nil {
		return sides{}, err
	}
	r, err := newBareRaft(b)
	if err != nil {
		return sides{}, errors.Join(err, p.stop())
	}
	client := &http.Client{Timeout: 20 * time.Second}
	const each = 50
	made := 0
	average := func(once func() error) (float64, error) {
		began := time.Now()
		for range each {
			if err := once(); err != nil {
				return 0, err
			}
		}
		return time.Since(began).Seconds() * 1000 / each, nil
	}
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			return average(func() error {
				made++
				return call(client, http.MethodPost, "http://"+p.addr+"/v1/topics", fmt.Sprintf(`{"name":"c%d"}`, made), http.StatusCreated)
			})
		},
		reference: func(ctx context.Context) (float64, error) {
			command := make([]byte, 64)
			return average(func() error {
				for range 3 {
					if err := r.sync(); err != nil {
						return err
					}
				}
				return r.apply(command)
			})
		},
		stop: func() error { client.CloseIdleConnections(); return errors.Join(r.close(), p.stop()) },
	}, nil
}

// bareRaft is hashicorp/raft with one voter on bbolt and a state machine that keeps nothing.
type bareRaft struct {
	raft  *raft.Raft
	store *raftboltdb.BoltStore
	file  *os.File
	dir   string
}

func newBareRaft(b *bench) (*bareRaft, error) {
	dir, err := b.data("raft")
	if err != nil {
		return nil, err
	}
	store, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "raft.db"),
		BoltOptions: &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}})
	if err != nil {
		return nil, err
	}
	snapshots, err := raft.NewFileSnapshotStore(dir, 1, io.Discard)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	config := raft.DefaultConfig()
	config.LocalID, config.LogOutput, config.LogLevel = "1", io.Discard, "ERROR"
	address, transport := raft.NewInmemTransport("1")
	if err := raft.BootstrapCluster(config, store, store, snapshots, transport,
		raft.Configuration{Servers: []raft.Server{{ID: "1", Address: address}}}); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	node, err := raft.NewRaft(config, nothing{}, store, store, snapshots, transport)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	file, err := os.Create(filepath.Join(dir, "synced"))
	if err != nil {
		return nil, errors.Join(err, node.Shutdown().Error(), store.Close())
	}
	r := &bareRaft{node, store, file, dir}
	for deadline := time.Now().Add(20 * time.Second); node.State() != raft.Leader; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, errors.Join(errors.New("bare raft elects nobody"), r.close())
		}
	}
	return r, nil
}

func (r *bareRaft) apply(command []byte) error { return r.raft.Apply(command, 10*time.Second).Error() }

// sync makes a small file of its own durable, as each of the files of a new partition is.
func (r *bareRaft) sync() error {
	if _, err := r.file.WriteAt([]byte("x"), 0); err != nil {
		return err
	}
	return r.file.Sync()
}

func (r *bareRaft) close() error {
	return errors.Join(r.raft.Shutdown().Error(), r.store.Close(), r.file.Close(), os.RemoveAll(r.dir))
}

// nothing is a state machine without state.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                  { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error)  { return nothing{}, nil }
func (nothing) Restore(from io.ReadCloser) error     { return from.Close() }
func (nothing) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (nothing) Release()                             {}

func startToReady(_ context.Context, b *bench) (sides, error) {
	return sides{
		weir: func(ctx context.Context) (float64, error) {
			began := time.Now()
			p, err := b.startWeir(ctx)
			took := time.Since(began)
			if err != nil {
				return 0, err
			}
			return took.Seconds() * 1000, p.stop()
		},
		reference: func(ctx context.Context) (float64, error) {
			began := time.Now()
			err := exec.CommandContext(ctx, b.weirPath, "version").Run()
			return time.Since(began).Seconds() * 1000, err
		},
		stop: func() error { return nil },
	}, nil
}
