package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weirlog/weir"
	"github.com/weirlog/weir/broker"
	"github.com/weirlog/weir/broker/cluster/quorum"
	"github.com/weirlog/weir/broker/group/view"
	"github.com/weirlog/weir/cmd/weir/config"
	"github.com/weirlog/weir/gateway"
	"github.com/weirlog/weir/gateway/session"
	"github.com/weirlog/weir/internal/run"
	"github.com/weirlog/weir/storage"
	"github.com/weirlog/weir/storage/vfs"
	"github.com/weirlog/weir/web"
)

// server is one run of a node: its rooms, each with what it needs of the ones below.
type server struct {
	cfg    config.Config
	logger *slog.Logger
	greet  func(net.Addr) // tells a person where the node serves; may be nil
}

// run holds the data directory and has the rooms started upwards, quorum, groups' view, broker, door, and stopped
// downwards. It returns when everything is closed.
func (s *server) run(ctx context.Context) (err error) {
	if err := probe(ctx, s.cfg.Gateway.Address); err != nil {
		return err
	}
	dir, err := storage.OpenDir(vfs.OS{}, s.cfg.Broker.Dir, storage.DirConfig{NodeID: s.cfg.Broker.NodeID, BootID: storage.BootID()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	s.logger.Info("starting", "version", versionText(), "pid", os.Getpid(), "data", dir.Path, "node", dir.NodeID, "cluster", dir.ClusterID)
	if dir.Rebuilt {
		s.logger.Warn("weir.json could not be read and was written anew", "data", dir.Path)
	}
	stack := run.NewStack(ctx)
	if err := s.start(stack, dir); err != nil {
		stack.Stop()
		if stopped := stack.Wait(); stopped != nil || ctx.Err() != nil {
			return stopped // err says no more than that the start was cut short
		}
		return err
	}
	err = stack.Wait()
	if err == nil {
		s.logger.Info("stopped")
	}
	return err
}

// start puts one room on the other.
func (s *server) start(stack *run.Stack, dir *storage.Dir) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())

	members, err := s.quorum(dir, registry)
	if err != nil {
		return err
	}
	err = stack.Start("quorum", func(ctx context.Context, ready func()) error {
		ready()
		return members.Run(ctx)
	})
	if err != nil {
		return errors.Join(err, members.Close())
	}
	if err := members.AwaitReady(stack.Context()); err != nil {
		return err
	}

	groups, err := s.groupView(stack, dir)
	if err != nil {
		return err
	}
	cfg := s.cfg.Broker
	cfg.ClusterID = dir.ClusterID
	node, err := broker.New(cfg, broker.Deps{
		FS: vfs.OS{}, Cluster: members, Groups: groups, SameBoot: dir.SameBoot, Logger: s.logger, Registerer: registry,
	})
	if err != nil {
		return err
	}
	err = stack.Start("broker", func(ctx context.Context, ready func()) error {
		ready() // the door says what is not ready yet
		return node.Run(ctx)
	})
	if err != nil {
		return err
	}
	addr, err := s.door(stack, node, registry)
	if err != nil {
		return err
	}
	if err := awaitReady(stack.Context(), node); err != nil {
		return err
	}
	s.logger.Info("ready", "address", addr.String())
	if s.greet != nil {
		s.greet(addr)
	}
	return nil
}

// quorum opens the metadata. A directory without any is given one only when there is nothing in it that
// a lost one could have described.
func (s *server) quorum(dir *storage.Dir, registry prometheus.Registerer) (*quorum.Quorum, error) {
	found := dir.Fresh
	if !found {
		topics, err := vfs.OS{}.ReadDir(filepath.Join(dir.Path, "topics"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		found = len(topics) == 0
	}
	return quorum.Open(quorum.Config{
		Dir: filepath.Join(dir.Path, "raft"), Node: dir.NodeID, ClusterID: dir.ClusterID, Found: found,
		DiskLimit: s.cfg.Broker.DiskLimit, Logger: s.logger, Metrics: registry,
	})
}

// groupView opens the copy of what __groups says, which is closed after the broker is.
func (s *server) groupView(stack *run.Stack, dir *storage.Dir) (*view.View, error) {
	v, err := view.Open(filepath.Join(dir.Path, "groups", "view.db"), s.logger)
	if err != nil {
		return nil, err
	}
	err = stack.Start("groups' view", func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		return v.Close()
	})
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// door opens the gateway and returns where it listens.
func (s *server) door(stack *run.Stack, node *broker.Node, registry *prometheus.Registry) (net.Addr, error) {
	hub, err := session.NewHub(s.cfg.Sessions, session.Deps{
		Log: node, Producer: node, Groups: node, NodeID: node.ID(), Logger: s.logger, Registerer: registry,
	})
	if err != nil {
		return nil, err
	}
	var listening func(net.Addr)
	door, err := gateway.New(s.cfg.Gateway, gateway.Deps{
		Node: node, Groups: node, NodeID: node.ID(), Hub: hub, Logger: s.logger, Registerer: registry, Gatherer: registry,
		OpenAPI: weir.OpenAPI, AsyncAPI: weir.AsyncAPI, Web: web.Files,
		Listening: func(addr net.Addr) { listening(addr) },
	})
	if err != nil {
		return nil, err
	}
	err = stack.Start("gateway", func(ctx context.Context, ready func()) error {
		listening = func(net.Addr) { ready() }
		return door.Run(ctx)
	})
	if err != nil {
		return nil, hinted(s.cfg.Gateway.Address, err)
	}
	if door.Addr() == nil {
		return nil, errors.New("the gateway listens nowhere")
	}
	return door.Addr(), nil
}

// awaitReady returns when the node has opened its partitions. It asks now and then: this happens once, and
// nothing else waits for it.
func awaitReady(ctx context.Context, node *broker.Node) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for node.Ready() != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func buildInfo() prometheus.Collector {
	info := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": versionText()},
	}, func() float64 { return 1 })
	return info
}
