package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"slices"
)

// The layout of a bbolt file, version 2. Numbers are in the byte order of the machine that wrote them.
//
// A file is pages of one size. Pages 0 and 1 are the heads of the last two transactions; the newer of those
// whose sum is right counts. A page begins with its own number (8 bytes), its kind (2), the number of its
// elements (2) and the number of pages that it takes beyond the first (4). Elements follow, 16 bytes each, and
// then, in their order and without gaps, keys and values.
const (
	pageHead    = 16
	elementSize = 16
	tableHead   = 16 // of a table within a value: its root's page, 0 when the page follows; a counter

	branchPage = 0x01
	leafPage   = 0x02
	freePage   = 0x10

	magic      = 0xED0CDAED
	version    = 2
	headSize   = 64 // of it the last 8 bytes are the sum of what is before
	noFreePage = ^uint64(0)

	isTable  = 1  // of a leaf's element: its value is a table
	maxDepth = 64 // bbolt's trees are balanced: eight levels hold more than a disk does
)

var order = binary.NativeEndian

// head is what a walk needs of a file's head.
type head struct{ root, free, end, transaction uint64 }

// pages walks the pages of one file.
type pages struct {
	file     io.ReaderAt
	pageSize int
	end      uint64 // the first page that is not there
	met      []bool // by number: a page that something refers to
}

// checkPages refuses a file over which bbolt would panic: each page that it reaches must be there, be reached
// once, be what it is taken for, and have its keys in order within its own bytes. Stricter than bbolt, it
// also wants the bytes packed as bbolt packs them, so that a wrong number of elements shows.
func checkPages(file io.ReaderAt, size int64, pageSize int) error {
	if pageSize < pageHead+headSize {
		return Damaged("pages of %d bytes", pageSize)
	}
	h, err := readHead(file, pageSize)
	if err != nil {
		return err
	}
	if h.end > uint64(size)/uint64(pageSize) {
		return Damaged("the file has %d bytes and says that it has %d pages of %d", size, h.end, pageSize)
	}
	p := pages{file: file, pageSize: pageSize, end: h.end, met: make([]bool, h.end)}
	if err := p.tree(h.root, nil, nil, 0); err != nil {
		return err
	}
	return p.free(h.free)
}

// readHead returns the head that bbolt goes by.
func readHead(file io.ReaderAt, pageSize int) (head, error) {
	var found []head
	for number := range int64(2) {
		b := make([]byte, headSize)
		if err := readFull(file, b, number*int64(pageSize)+pageHead); err != nil {
			return head{}, err
		}
		sum := fnv.New64a()
		_, _ = sum.Write(b[:headSize-8])
		if order.Uint32(b) == magic && order.Uint32(b[4:]) == version && order.Uint64(b[headSize-8:]) == sum.Sum64() {
			if int(order.Uint32(b[8:])) != pageSize {
				return head{}, Damaged("the pages have %d bytes, head %d says %d", pageSize, number, order.Uint32(b[8:]))
			}
			found = append(found, head{root: order.Uint64(b[16:]), free: order.Uint64(b[32:]), end: order.Uint64(b[40:]), transaction: order.Uint64(b[48:])})
		}
	}
	if len(found) == 0 {
		return head{}, Damaged("neither head of the file is whole")
	}
	return slices.MaxFunc(found, func(a, b head) int {
		if a.transaction > b.transaction {
			return 1
		}
		return -1
	}), nil
}

// page reads a page with those that it takes beyond the first, and marks them as met.
func (p *pages) page(number uint64) ([]byte, error) {
	if number < 2 || number >= p.end {
		return nil, Damaged("something refers to page %d of %d", number, p.end)
	}
	b := make([]byte, p.pageSize)
	if err := readFull(p.file, b, int64(number)*int64(p.pageSize)); err != nil {
		return nil, err
	}
	if own := order.Uint64(b); own != number {
		return nil, Damaged("page %d says that it is page %d", number, own)
	}
	more := uint64(order.Uint32(b[12:]))
	if more >= p.end-number {
		return nil, Damaged("page %d and %d more, of %d", number, more, p.end)
	}
	for one := number; one <= number+more; one++ {
		if p.met[one] {
			return nil, Damaged("page %d is in two places", one)
		}
		p.met[one] = true
	}
	if more > 0 {
		b = slices.Grow(b, int(more)*p.pageSize)[:int(more+1)*p.pageSize]
		if err := readFull(p.file, b[p.pageSize:], int64(number+1)*int64(p.pageSize)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// tree checks a page and all below it. Their keys are from least on and below limit; nil: any.
func (p *pages) tree(number uint64, least, limit []byte, depth int) error {
	if depth > maxDepth {
		return Damaged("page %d is too deep in its table", number)
	}
	b, err := p.page(number)
	if err != nil {
		return err
	}
	all, err := elements(b, number)
	if err != nil {
		return err
	}
	for i, e := range all {
		switch order := bytes.Compare(e.key, least); {
		case i == 0 && order < 0, i > 0 && order <= 0:
			return Damaged("key %d of page %d is out of order", i, number)
		case limit != nil && bytes.Compare(e.key, limit) >= 0:
			return Damaged("key %d of page %d belongs to the page after it", i, number)
		}
		least = e.key
	}
	for i, e := range all {
		switch {
		case e.kind == branchPage:
			upTo := limit
			if i+1 < len(all) {
				upTo = all[i+1].key
			}
			err = p.tree(e.child, e.key, upTo, depth+1)
		case e.flags == isTable:
			err = p.table(e.value, number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// table checks a table within a value of a page.
func (p *pages) table(value []byte, number uint64) error {
	if len(value) < tableHead {
		return Damaged("a table in page %d has %d bytes", number, len(value))
	}
	if root := order.Uint64(value); root != 0 {
		return p.tree(root, nil, nil, 0)
	}
	within := value[tableHead:]
	all, err := elements(within, number)
	if err != nil {
		return err
	}
	if own, more := order.Uint64(within), order.Uint32(within[12:]); own != 0 || more != 0 {
		return Damaged("a table within page %d says that it is page %d and %d more", number, own, more)
	}
	for i, e := range all {
		if e.kind != leafPage || e.flags != 0 || i > 0 && bytes.Compare(e.key, all[i-1].key) <= 0 {
			return Damaged("row %d of a table in page %d is out of order", i, number)
		}
	}
	return nil
}

// free checks the list of free pages, which a file has that was made and never written to.
func (p *pages) free(number uint64) error {
	if number == noFreePage {
		return nil
	}
	b, err := p.page(number)
	if err != nil {
		return err
	}
	if kind := order.Uint16(b[8:]); kind != freePage {
		return Damaged("page %d is of kind %#x and not the list of free pages", number, kind)
	}
	n, list := uint64(order.Uint16(b[10:])), b[pageHead:]
	if n == 0xffff {
		n, list = order.Uint64(list), list[8:]
	}
	if n > uint64(len(list)/8) {
		return Damaged("page %d lists %d free pages", number, n)
	}
	for i := range int(n) {
		one := order.Uint64(list[8*i:])
		if one < 2 || one >= p.end || p.met[one] {
			return Damaged("page %d is listed as free", one)
		}
		p.met[one] = true
	}
	return nil
}

// element is one of a page.
type element struct {
	kind       uint16 // of its page
	key, value []byte
	child      uint64 // of a branch: the page below
	flags      uint32 // of a leaf
}

// elements reads those of a page, or of a page within a value of page number.
func elements(b []byte, number uint64) ([]element, error) {
	if len(b) < pageHead {
		return nil, Damaged("a page in page %d has %d bytes", number, len(b))
	}
	kind, n := order.Uint16(b[8:]), int(order.Uint16(b[10:]))
	switch {
	case kind != branchPage && kind != leafPage:
		return nil, Damaged("page %d is of kind %#x", number, kind)
	case kind == branchPage && n == 0:
		return nil, Damaged("page %d refers to nothing", number)
	case n > (len(b)-pageHead)/elementSize:
		return nil, Damaged("page %d says that it has %d elements", number, n)
	}
	all := make([]element, n)
	next := pageHead + n*elementSize // where the next key must begin
	for i := range all {
		at := pageHead + i*elementSize
		raw := b[at : at+elementSize]
		e := element{kind: kind}
		var position, keySize, valueSize uint32
		if kind == branchPage {
			position, keySize, e.child = order.Uint32(raw), order.Uint32(raw[4:]), order.Uint64(raw[8:])
		} else {
			e.flags, position, keySize, valueSize = order.Uint32(raw), order.Uint32(raw[4:]), order.Uint32(raw[8:]), order.Uint32(raw[12:])
		}
		size := uint64(keySize) + uint64(valueSize)
		if e.flags > isTable || keySize == 0 || uint64(at)+uint64(position) != uint64(next) || size > uint64(len(b)-next) {
			return nil, Damaged("element %d of page %d is not packed as it should be", i, number)
		}
		e.key = b[next : next+int(keySize)]
		e.value = b[next+int(keySize) : next+int(size)]
		next += int(size)
		all[i] = e
	}
	return all, nil
}

// readFull reads all of b. A file that ends before is damaged, any other error is the disk's.
func readFull(file io.ReaderAt, b []byte, at int64) error {
	n, err := file.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return Damaged("the file ends within a page")
	default:
		return err
	}
}
