"""Pages with a block between two marks that a program writes from results."""
import sys


def put(page, marks, block, made_from, is_written):
    """With is_written the block is put between the marks of the page; without, a difference ends the program."""
    text = page.read_text(encoding="utf-8")
    if any(text.count(mark) != 1 for mark in marks) or text.index(marks[1]) < text.index(marks[0]):
        sys.exit(f"{page.name} lacks a mark, or has one twice")
    begin, end = (text.index(mark) for mark in marks)
    wanted = text[: begin + len(marks[0])] + block + text[end:]
    if is_written:
        page.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        sys.exit(f"{page.name} has other figures than {made_from}: see its mark")
