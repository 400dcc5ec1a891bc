package view

import (
	"encoding/binary"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"github.com/weirlog/weir/internal/boltfile"
	"github.com/weirlog/weir/topic"
)

const (
	ledgerVersion = 1
	ledgerBytes   = 1 + 16 + 8 + 4 + 8 + 8 + 8 + 8 + 4
)

var table = crc32.MakeTable(crc32.Castagnoli)

// ledger is what the file says of a partition beside its rows. bbolt has no sums over its pages: a bit that
// changed, a row that is missing and a page of long ago in the place of another would all pass.
type ledger struct {
	at    Position
	rows  int64
	bytes int64  // of keys and values
	sum   uint64 // of the sums of all rows; the order does not matter, so that a change costs one row
}

// number is the key of a partition.
func number(p topic.Partition) []byte { return binary.BigEndian.AppendUint32(nil, uint32(p)) }

func rowsOf(tx *bbolt.Tx, p topic.Partition) *bbolt.Bucket {
	return tx.Bucket(rowsTable).Bucket(number(p))
}

// rowSum is the sum of a row. The key's length goes in, or two rows could move a byte between key and value.
func rowSum(key, value []byte) uint64 {
	sum := crc32.Update(uint32(len(key)), table, key)
	return uint64(crc32.Update(sum, table, value))
}

func (l *ledger) add(key, value []byte) {
	l.rows++
	l.bytes += int64(len(key) + len(value))
	l.sum += rowSum(key, value)
}

func (l *ledger) take(key, value []byte) {
	l.rows--
	l.bytes -= int64(len(key) + len(value))
	l.sum -= rowSum(key, value)
}

// append appends the ledger as it stands in the file. The partition goes into its sum, so that one is not
// taken for another's.
func (l *ledger) append(b []byte, p topic.Partition) []byte {
	start := len(b)
	b = append(b, ledgerVersion)
	b = append(b, l.at.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.at.End))
	b = binary.BigEndian.AppendUint32(b, uint32(l.at.Epoch))
	b = binary.BigEndian.AppendUint64(b, uint64(l.at.At))
	b = binary.BigEndian.AppendUint64(b, uint64(l.rows))
	b = binary.BigEndian.AppendUint64(b, uint64(l.bytes))
	b = binary.BigEndian.AppendUint64(b, l.sum)
	return binary.BigEndian.AppendUint32(b, crc32.Update(uint32(p), table, b[start:]))
}

// readLedger reads that of a partition; the zero ledger when nothing was applied.
func readLedger(tx *bbolt.Tx, p topic.Partition) (ledger, error) {
	b := tx.Bucket(positionTable).Get(number(p))
	if b == nil {
		return ledger{}, nil
	}
	return parseLedger(b, p)
}

func parseLedger(b []byte, p topic.Partition) (ledger, error) {
	if len(b) != ledgerBytes || b[0] != ledgerVersion {
		return ledger{}, boltfile.Damaged("the position of partition %d has %d bytes, or is of another version", p, len(b))
	}
	if sum := b[ledgerBytes-4:]; crc32.Update(uint32(p), table, b[:ledgerBytes-4]) != binary.BigEndian.Uint32(sum) {
		return ledger{}, boltfile.Damaged("the position of partition %d has another sum", p)
	}
	var l ledger
	b = b[1+copy(l.at.ID[:], b[1:]):]
	l.at.End = topic.Offset(binary.BigEndian.Uint64(b))
	l.at.Epoch = topic.Epoch(binary.BigEndian.Uint32(b[8:]))
	l.at.At = topic.Millis(binary.BigEndian.Uint64(b[12:]))
	l.rows = int64(binary.BigEndian.Uint64(b[20:]))
	l.bytes = int64(binary.BigEndian.Uint64(b[28:]))
	l.sum = binary.BigEndian.Uint64(b[36:])
	return l, nil
}

// check compares the ledger with the rows, and says of each row what it is to each when that is not nil.
func (l *ledger) check(tx *bbolt.Tx, p topic.Partition, each func(key, value []byte)) error {
	var found ledger
	if rows := rowsOf(tx, p); rows != nil {
		err := boltfile.Rows(rows, func(key, value []byte) error {
			if value == nil {
				return boltfile.Damaged("partition %d has a table among its rows", p)
			}
			found.add(key, value)
			if each != nil {
				each(key, value)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	found.at = l.at
	if found != *l {
		return boltfile.Damaged("partition %d has %d rows of %d bytes, its position says %d of %d; the sums are %x and %x",
			p, found.rows, found.bytes, l.rows, l.bytes, found.sum, l.sum)
	}
	return nil
}

// copied is rows that were copied out of the file.
type copied struct {
	bytes []byte
	sizes []int // of key and value, in turn
}

func (l *ledger) copy(tx *bbolt.Tx, p topic.Partition) (copied, error) {
	var c copied
	if size := tx.Size(); l.bytes <= size && l.rows <= size { // else it does not fit anyway
		c = copied{bytes: make([]byte, 0, l.bytes), sizes: make([]int, 0, 2*l.rows)}
	}
	err := l.check(tx, p, func(key, value []byte) {
		c.bytes = append(append(c.bytes, key...), value...)
		c.sizes = append(c.sizes, len(key), len(value))
	})
	return c, err
}

func (c *copied) each(f func(key, value []byte) error) error {
	rest := c.bytes
	for i := 0; i < len(c.sizes); i += 2 {
		key, value := c.sizes[i], c.sizes[i]+c.sizes[i+1]
		if err := f(rest[:key:key], rest[key:value:value]); err != nil {
			return err
		}
		rest = rest[value:]
	}
	return nil
}

// checkAll reads the whole file.
func checkAll(tx *bbolt.Tx) error {
	positions, rows := tx.Bucket(positionTable), tx.Bucket(rowsTable)
	err := boltfile.Rows(positions, func(key, value []byte) error {
		if len(key) != 4 || value == nil {
			return boltfile.Damaged("a position has a key of %d bytes, or no value", len(key))
		}
		p := topic.Partition(binary.BigEndian.Uint32(key))
		l, err := parseLedger(value, p)
		if err != nil {
			return err
		}
		if rows == nil {
			return boltfile.Damaged("there are positions and no rows")
		}
		return l.check(tx, p, nil)
	})
	if err != nil {
		return err
	}
	return boltfile.Rows(rows, func(key, value []byte) error {
		if value != nil || positions.Get(key) == nil {
			return boltfile.Damaged("partition %x has rows and no position", key)
		}
		return nil
	})
}
