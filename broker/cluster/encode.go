package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirlog/weir/internal/fault"
	"github.com/weirlog/weir/internal/wire"
	"github.com/weirlog/weir/topic"
)

// Versions of the formats. A change of a format takes the next number and keeps reading the old ones.
const (
	entryFormat    = 1
	commandVersion = 1
)

// opCode is an Op's number in the bytes of a command. A number is never given to another Op.
type opCode byte

const (
	codeFoundCluster    opCode = 1
	codeRegisterNode    opCode = 2
	codeCreateTopic     opCode = 3
	codeAlterTopic      opCode = 4
	codeDeleteTopic     opCode = 5
	codeChangePartition opCode = 6
	codePutEntry        opCode = 7
	codeDeleteEntry     opCode = 8
	codeRaiseEpoch      opCode = 9
)

func (FoundCluster) code() opCode    { return codeFoundCluster }
func (RegisterNode) code() opCode    { return codeRegisterNode }
func (CreateTopic) code() opCode     { return codeCreateTopic }
func (AlterTopic) code() opCode      { return codeAlterTopic }
func (DeleteTopic) code() opCode     { return codeDeleteTopic }
func (ChangePartition) code() opCode { return codeChangePartition }
func (PutEntry) code() opCode        { return codePutEntry }
func (DeleteEntry) code() opCode     { return codeDeleteEntry }
func (RaiseEpoch) code() opCode      { return codeRaiseEpoch }

// String is the command's name in logs and metrics.
func (c opCode) String() string {
	switch c {
	case codeFoundCluster:
		return "found_cluster"
	case codeRegisterNode:
		return "register_node"
	case codeCreateTopic:
		return "create_topic"
	case codeAlterTopic:
		return "alter_topic"
	case codeDeleteTopic:
		return "delete_topic"
	case codeChangePartition:
		return "change_partition"
	case codePutEntry:
		return "put_entry"
	case codeDeleteEntry:
		return "delete_entry"
	case codeRaiseEpoch:
		return "raise_epoch"
	default:
		return fmt.Sprintf("op(%d)", byte(c))
	}
}

// Name is what the command does, in a word for logs and metrics.
func (c Command) Name() string { return c.Op.code().String() }

// Encode returns the bytes of one command.
func (c Command) Encode() []byte {
	w := writer{b: make([]byte, 0, 128)}
	w.b.Byte(commandVersion)
	w.b.Byte(byte(c.Op.code()))
	w.b.ID(c.ID)
	c.Op.encode(&w)
	return w.b
}

// EncodeEntry joins encoded commands to one entry of the log: they are committed together and applied
// in this order. There must be at least one.
func EncodeEntry(commands [][]byte) []byte {
	size := 16
	for _, c := range commands {
		size += len(c) + 4
	}
	w := writer{b: make([]byte, 0, size)}
	w.b.Byte(entryFormat)
	w.b.Count(len(commands))
	for _, c := range commands {
		w.b.Bytes(c)
	}
	w.checksum()
	return w.b
}

// DecodeEntry reads what [EncodeEntry] wrote. An error is a fault of kind Corrupt; the entry must not
// be skipped.
func DecodeEntry(b []byte) ([]Command, error) {
	commands, err := decodeEntry(b)
	if err != nil {
		return nil, fault.Newf("cluster.DecodeEntry", fault.Corrupt, nil, "an entry of the metadata log cannot be read: %w", err)
	}
	return commands, nil
}

func decodeEntry(b []byte) ([]Command, error) {
	body, err := checked(b)
	if err != nil {
		return nil, err
	}
	r := reader{wire.NewReader(body)}
	if format := r.Byte(); r.Err() == nil && format != entryFormat {
		return nil, newer("an entry", int(format), entryFormat)
	}
	n := r.Count(1)
	if r.Err() == nil && n == 0 {
		return nil, errors.New("it has no command")
	}
	commands := make([]Command, 0, n)
	for range n {
		c, err := decodeCommand(r.View())
		if r.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		commands = append(commands, c)
	}
	return commands, r.End()
}

// ErrNewer is below the errors about sound bytes that a later program wrote.
var ErrNewer = errors.New("start the newer program that wrote it")

func newer(what string, version, known int) error {
	return fmt.Errorf("%s has format %d and this program knows formats up to %d; %w", what, version, known, ErrNewer)
}

func decodeCommand(b []byte) (Command, error) {
	r := reader{wire.NewReader(b)}
	if version := r.Byte(); r.Err() == nil && version != commandVersion {
		return Command{}, newer("a command", int(version), commandVersion)
	}
	code := opCode(r.Byte())
	c := Command{ID: r.ID()}
	if r.Err() != nil {
		return Command{}, r.Err()
	}
	switch code {
	case codeFoundCluster:
		c.Op = FoundCluster{ClusterID: r.Text()}
	case codeRegisterNode:
		c.Op = RegisterNode{Node: r.node(), At: r.millis()}
	case codeCreateTopic:
		c.Op = decodeCreateTopic(&r)
	case codeAlterTopic:
		c.Op = decodeAlterTopic(&r)
	case codeDeleteTopic:
		c.Op = DeleteTopic{ID: r.ID()}
	case codeChangePartition:
		c.Op = decodeChangePartition(&r)
	case codePutEntry:
		c.Op = PutEntry{Kind: r.Text(), Name: r.Text(), Expect: r.Uint(), Value: r.Bytes()}
	case codeDeleteEntry:
		c.Op = DeleteEntry{Kind: r.Text(), Name: r.Text(), Expect: r.Uint()}
	case codeRaiseEpoch:
		c.Op = decodeRaiseEpoch(&r)
	default:
		return Command{}, fmt.Errorf("a command is of kind %d, which this program does not know; %w", byte(code), ErrNewer)
	}
	return c, r.End()
}

func (op FoundCluster) encode(w *writer) { w.b.Text(op.ClusterID) }

func (op RegisterNode) encode(w *writer) {
	w.node(op.Node)
	w.b.Int(int64(op.At))
}

func (op CreateTopic) encode(w *writer) {
	w.b.ID(op.ID)
	w.b.Text(string(op.Name))
	w.b.Int(int64(op.Partitions))
	w.b.Int(int64(op.Replication))
	w.b.Count(len(op.Assignment))
	for _, replicas := range op.Assignment {
		w.nodes(replicas)
	}
	w.b.Texts(op.Overrides)
	w.b.Text(op.Creator)
	w.b.Int(int64(op.At))
}

func decodeCreateTopic(r *reader) CreateTopic {
	op := CreateTopic{ID: r.ID(), Name: topic.Name(r.Text()), Partitions: r.Whole(), Replication: r.Whole()}
	if n := r.Count(1); n > 0 {
		op.Assignment = make([][]topic.NodeID, n)
		for i := range op.Assignment {
			op.Assignment[i] = r.nodes()
		}
	}
	op.Overrides = r.Texts()
	op.Creator = r.Text()
	op.At = r.millis()
	return op
}

func (op AlterTopic) encode(w *writer) {
	w.b.ID(op.ID)
	w.b.Count(len(op.Settings))
	for _, name := range slices.Sorted(maps.Keys(op.Settings)) {
		w.b.Text(name)
		if value := op.Settings[name]; value != nil {
			w.b.Byte(1)
			w.b.Text(*value)
		} else {
			w.b.Byte(0)
		}
	}
	w.b.Int(int64(op.Partitions))
	w.b.Int(int64(op.At))
}

func decodeAlterTopic(r *reader) AlterTopic {
	op := AlterTopic{ID: r.ID()}
	if n := r.Count(1); n > 0 {
		op.Settings = make(map[string]*string, n)
		last := ""
		for i := range n {
			name := r.Text()
			if i > 0 && name <= last {
				r.Fail(wire.ErrOrder)
				break
			}
			last = name
			switch given := r.Byte(); given {
			case 0:
				op.Settings[name] = nil
			case 1:
				value := r.Text()
				op.Settings[name] = &value
			default:
				r.Fail(wire.ErrForm)
			}
		}
	}
	op.Partitions = r.Whole()
	op.At = r.millis()
	return op
}

func (op DeleteTopic) encode(w *writer) { w.b.ID(op.ID) }

func (op ChangePartition) encode(w *writer) {
	w.b.ID(op.Partition.ID)
	w.b.Int(int64(op.Partition.Partition))
	w.b.Int(int64(op.Epoch))
	w.b.Int(int64(op.Changes))
	w.node(op.By)
	w.b.Int(int64(op.Incarnation))
	w.node(op.Leader)
	w.nodes(op.InSync)
}

func decodeChangePartition(r *reader) ChangePartition {
	return ChangePartition{
		Partition:   topic.Ref{ID: r.ID(), Partition: topic.Partition(r.Int32())},
		Epoch:       topic.Epoch(r.Int32()),
		Changes:     topic.PartitionEpoch(r.Int32()),
		By:          r.node(),
		Incarnation: topic.Incarnation(r.Int()),
		Leader:      r.node(),
		InSync:      r.nodes(),
	}
}

func (op PutEntry) encode(w *writer) {
	w.b.Text(op.Kind)
	w.b.Text(op.Name)
	w.b.Uint(op.Expect)
	w.b.Bytes(op.Value)
}

func (op DeleteEntry) encode(w *writer) {
	w.b.Text(op.Kind)
	w.b.Text(op.Name)
	w.b.Uint(op.Expect)
}

func (op RaiseEpoch) encode(w *writer) {
	w.b.ID(op.Partition.ID)
	w.b.Int(int64(op.Partition.Partition))
	w.node(op.By)
	w.b.Int(int64(op.Incarnation))
	w.b.Int(int64(op.Above))
}

func decodeRaiseEpoch(r *reader) RaiseEpoch {
	return RaiseEpoch{
		Partition:   topic.Ref{ID: r.ID(), Partition: topic.Partition(r.Int32())},
		By:          r.node(),
		Incarnation: topic.Incarnation(r.Int()),
		Above:       topic.Epoch(r.Int32()),
	}
}
