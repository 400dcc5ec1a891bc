package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirlog/weir/internal/fault"
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
	w.byte(commandVersion)
	w.byte(byte(c.Op.code()))
	w.id(c.ID)
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
	w.byte(entryFormat)
	w.count(len(commands))
	for _, c := range commands {
		w.bytes(c)
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
	r := reader{b: body}
	if format := r.byte(); r.err == nil && format != entryFormat {
		return nil, newer("an entry", int(format), entryFormat)
	}
	n := r.count()
	if r.err == nil && n == 0 {
		return nil, errors.New("it has no command")
	}
	commands := make([]Command, 0, n)
	for range n {
		c, err := decodeCommand(r.view())
		if r.err != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		commands = append(commands, c)
	}
	return commands, r.end()
}

// ErrNewer is below the errors about sound bytes that a later program wrote.
var ErrNewer = errors.New("start the newer program that wrote it")

func newer(what string, version, known int) error {
	return fmt.Errorf("%s has format %d and this program knows formats up to %d; %w", what, version, known, ErrNewer)
}

func decodeCommand(b []byte) (Command, error) {
	r := reader{b: b}
	if version := r.byte(); r.err == nil && version != commandVersion {
		return Command{}, newer("a command", int(version), commandVersion)
	}
	code := opCode(r.byte())
	c := Command{ID: r.id()}
	if r.err != nil {
		return Command{}, r.err
	}
	switch code {
	case codeFoundCluster:
		c.Op = FoundCluster{ClusterID: r.string()}
	case codeRegisterNode:
		c.Op = RegisterNode{Node: r.node(), At: r.millis()}
	case codeCreateTopic:
		c.Op = decodeCreateTopic(&r)
	case codeAlterTopic:
		c.Op = decodeAlterTopic(&r)
	case codeDeleteTopic:
		c.Op = DeleteTopic{ID: r.id()}
	case codeChangePartition:
		c.Op = decodeChangePartition(&r)
	case codePutEntry:
		c.Op = PutEntry{Kind: r.string(), Name: r.string(), Expect: r.uint(), Value: r.bytes()}
	case codeDeleteEntry:
		c.Op = DeleteEntry{Kind: r.string(), Name: r.string(), Expect: r.uint()}
	case codeRaiseEpoch:
		c.Op = decodeRaiseEpoch(&r)
	default:
		return Command{}, fmt.Errorf("a command is of kind %d, which this program does not know; %w", byte(code), ErrNewer)
	}
	return c, r.end()
}

func (op FoundCluster) encode(w *writer) { w.string(op.ClusterID) }

func (op RegisterNode) encode(w *writer) {
	w.node(op.Node)
	w.int(int64(op.At))
}

func (op CreateTopic) encode(w *writer) {
	w.id(op.ID)
	w.string(string(op.Name))
	w.int(int64(op.Partitions))
	w.int(int64(op.Replication))
	w.count(len(op.Assignment))
	for _, replicas := range op.Assignment {
		w.nodes(replicas)
	}
	w.overrides(op.Overrides)
	w.string(op.Creator)
	w.int(int64(op.At))
}

func decodeCreateTopic(r *reader) CreateTopic {
	op := CreateTopic{ID: r.id(), Name: topic.Name(r.string()), Partitions: r.whole(), Replication: r.whole()}
	if n := r.count(); n > 0 {
		op.Assignment = make([][]topic.NodeID, n)
		for i := range op.Assignment {
			op.Assignment[i] = r.nodes()
		}
	}
	op.Overrides = r.overrides()
	op.Creator = r.string()
	op.At = r.millis()
	return op
}

func (op AlterTopic) encode(w *writer) {
	w.id(op.ID)
	w.count(len(op.Settings))
	for _, name := range slices.Sorted(maps.Keys(op.Settings)) {
		w.string(name)
		if value := op.Settings[name]; value != nil {
			w.byte(1)
			w.string(*value)
		} else {
			w.byte(0)
		}
	}
	w.int(int64(op.Partitions))
	w.int(int64(op.At))
}

func decodeAlterTopic(r *reader) AlterTopic {
	op := AlterTopic{ID: r.id()}
	if n := r.count(); n > 0 {
		op.Settings = make(map[string]*string, n)
		last := ""
		for i := range n {
			name := r.string()
			if i > 0 && name <= last {
				r.fail(errOrder)
				break
			}
			last = name
			switch given := r.byte(); given {
			case 0:
				op.Settings[name] = nil
			case 1:
				value := r.string()
				op.Settings[name] = &value
			default:
				r.fail(errForm)
			}
		}
	}
	op.Partitions = r.whole()
	op.At = r.millis()
	return op
}

func (op DeleteTopic) encode(w *writer) { w.id(op.ID) }

func (op ChangePartition) encode(w *writer) {
	w.id(op.Partition.ID)
	w.int(int64(op.Partition.Partition))
	w.int(int64(op.Epoch))
	w.int(int64(op.Changes))
	w.node(op.By)
	w.int(int64(op.Incarnation))
	w.node(op.Leader)
	w.nodes(op.InSync)
}

func decodeChangePartition(r *reader) ChangePartition {
	return ChangePartition{
		Partition:   topic.Ref{ID: r.id(), Partition: topic.Partition(r.int32())},
		Epoch:       topic.Epoch(r.int32()),
		Changes:     topic.PartitionEpoch(r.int32()),
		By:          r.node(),
		Incarnation: topic.Incarnation(r.int()),
		Leader:      r.node(),
		InSync:      r.nodes(),
	}
}

func (op PutEntry) encode(w *writer) {
	w.string(op.Kind)
	w.string(op.Name)
	w.uint(op.Expect)
	w.bytes(op.Value)
}

func (op DeleteEntry) encode(w *writer) {
	w.string(op.Kind)
	w.string(op.Name)
	w.uint(op.Expect)
}

func (op RaiseEpoch) encode(w *writer) {
	w.id(op.Partition.ID)
	w.int(int64(op.Partition.Partition))
	w.node(op.By)
	w.int(int64(op.Incarnation))
	w.int(int64(op.Above))
}

func decodeRaiseEpoch(r *reader) RaiseEpoch {
	return RaiseEpoch{
		Partition:   topic.Ref{ID: r.id(), Partition: topic.Partition(r.int32())},
		By:          r.node(),
		Incarnation: topic.Incarnation(r.int()),
		Above:       topic.Epoch(r.int32()),
	}
}
