package quorum

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"
)

// transport is how raft talks to other nodes: there are none, so it opens no port and every call to a
// peer fails. What it can do is hand raft one order from the node itself.
type transport struct {
	self     raft.ServerID
	incoming chan raft.RPC
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil) // without it raft would switch pre-vote off, silently
)

var errNoPeers = errors.New("this node has no peers")

func newTransport(self raft.ServerID) *transport {
	return &transport{self: self, incoming: make(chan raft.RPC, 1)}
}

// elect orders raft to stand for election at once. A follower waits for a leader's heartbeat first,
// for two seconds and more; a quorum of one has nobody to wait for. It is called once, before raft runs.
func (t *transport) elect() {
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.self), Addr: []byte(t.LocalAddr())}
	t.incoming <- raft.RPC{
		Command:  &raft.TimeoutNowRequest{RPCHeader: header},
		RespChan: make(chan raft.RPCResponse, 1),
	}
}

// Consumer is where raft takes requests from.
func (t *transport) Consumer() <-chan raft.RPC { return t.incoming }

// LocalAddr is the node's id: addresses are resolved elsewhere, so that a node can move.
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.self) }

// SetHeartbeatHandler does nothing: a heartbeat that is handled beside raft's main loop can be answered
// for a term that the loop has left, and logs diverge.
func (t *transport) SetHeartbeatHandler(func(raft.RPC)) {}

func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *transport) AppendEntries(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error {
	return errNoPeers
}

func (t *transport) RequestVote(raft.ServerID, raft.ServerAddress, *raft.RequestVoteRequest, *raft.RequestVoteResponse) error {
	return errNoPeers
}

func (t *transport) RequestPreVote(raft.ServerID, raft.ServerAddress, *raft.RequestPreVoteRequest, *raft.RequestPreVoteResponse) error {
	return errNoPeers
}

func (t *transport) InstallSnapshot(raft.ServerID, raft.ServerAddress, *raft.InstallSnapshotRequest, *raft.InstallSnapshotResponse, io.Reader) error {
	return errNoPeers
}

func (t *transport) TimeoutNow(raft.ServerID, raft.ServerAddress, *raft.TimeoutNowRequest, *raft.TimeoutNowResponse) error {
	return errNoPeers
}

func (t *transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

func (t *transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }
