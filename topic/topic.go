// Package topic holds the words that every room shares: names, partitions, offsets, epochs, marks,
// records, cursors, settings and the descriptions that cross the seam between a door and the broker.
//
// It does no I/O and starts no goroutine. A type for each quantity lets the compiler catch an epoch
// that is passed as an offset.
package topic

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirlog/weir/internal/fault"
)

// Name of a topic: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', but not "." or "..",
// as in Kafka. Names that begin with "__" are weir's own.
type Name string

// MaxNameBytes is the longest name that is allowed.
const MaxNameBytes = 249

// NameError says what is wrong with a topic's name.
type NameError struct {
	Name string // as it came
	Why  string // a sentence that goes on after the name
}

// Error names the name, shortened.
func (e *NameError) Error() string { return "topic name " + quote(e.Name) + ": " + e.Why }

// ParseName checks a name and copies it. The cause of its errors is a [NameError].
func ParseName(s string) (Name, error) {
	bad := func(why string) (Name, error) {
		return "", fault.New("topic.ParseName", fault.Validation, nil, &NameError{Name: strings.Clone(s), Why: why})
	}
	switch {
	case s == "":
		return bad("must not be empty")
	case len(s) > MaxNameBytes:
		return bad(fmt.Sprintf("is %d bytes long, at most %d are allowed", len(s), MaxNameBytes))
	case s == "." || s == "..":
		return bad(`must not be "." or ".."`)
	}
	for i, c := range s { // runes, so that the sentence shows the character that was typed
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		return bad(fmt.Sprintf("has %s at byte %d; allowed are a-z, A-Z, 0-9, '.', '_' and '-'", strconv.Quote(s[i:i+size]), i))
	}
	return Name(strings.Clone(s)), nil
}

// quote shortens what somebody sent, so that an error never echoes a whole body.
func quote(s string) string {
	most := 64
	if len(s) > most {
		for most > 0 && !utf8.RuneStart(s[most]) { // half a character would be printed as something else
			most--
		}
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}

// Internal says that the topic is weir's own: clients neither create, produce to nor delete it.
func (n Name) Internal() bool { return strings.HasPrefix(string(n), "__") }

// ID names one life of a topic. A topic that is deleted and made again under its old name has another.
// The zero ID is no topic.
type ID [16]byte

// NewID returns a random ID.
func NewID() ID {
	var id ID
	for id == (ID{}) {
		_, _ = rand.Read(id[:]) // crypto/rand.Read never fails: it ends the process instead
	}
	return id
}

// ParseID reads what [ID.String] wrote.
func ParseID(s string) (ID, error) {
	var id ID
	if base64.RawURLEncoding.DecodedLen(len(s)) != len(id) {
		return ID{}, fault.Newf("topic.ParseID", fault.Validation, nil, "topic id %s: must be 22 characters of base64url", quote(s))
	}
	n, err := base64.RawURLEncoding.Strict().Decode(id[:], []byte(s))
	if err != nil || n != len(id) { // fewer bytes: the library skips line ends
		return ID{}, fault.Newf("topic.ParseID", fault.Validation, nil, "topic id %s: must be 22 characters of base64url", quote(s))
	}
	return id, nil
}

// String is the ID in 22 characters of base64url, as Kafka's tools print one.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero says that this is no topic's ID.
func (id ID) IsZero() bool { return id == ID{} }

// Partition is the number of a partition in its topic. The first is 0.
type Partition int32

// AnyPartition in a record to append leaves the choice to the partitioner.
const AnyPartition Partition = -1

// Offset is the position of a record in its partition. The first is 0.
type Offset int64

// NoOffset stands where an offset is not known or not set.
const NoOffset Offset = -1

// Epoch counts the reigns of a partition's leaders. Each election adds one.
type Epoch int32

// NoEpoch stands where no epoch is known.
const NoEpoch Epoch = -1

// PartitionEpoch counts the changes of one partition's leader and in-sync set. Whoever proposes a
// change names the one that it saw, so a decision made on an old picture is refused.
type PartitionEpoch int32

// Mark says where a log ends: the epoch of its last record, and the offset after it.
type Mark struct {
	Epoch Epoch
	End   Offset
}

// Path names a partition for people: topic and number.
type Path struct {
	Topic     Name
	Partition Partition
}

// String is "orders/3".
func (p Path) String() string { return string(p.Topic) + "/" + strconv.Itoa(int(p.Partition)) }

// Ref names a partition for programs: it is never that of a topic of the same name made later.
type Ref struct {
	ID        ID
	Partition Partition
}

// Millis is a time in milliseconds since 1970-01-01 UTC.
type Millis int64

// NoTimestamp stands where a record has no timestamp of its own and gets the node's clock.
const NoTimestamp Millis = -1

// NodeID is the number of a node in its cluster, from 1 on.
type NodeID int32

// Incarnation is the number of a node's process start, from 1 on; it rises with each start.
type Incarnation int64
