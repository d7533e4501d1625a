# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
import os
import pathlib

import pytest

from ansible_collections.threadwise.smt.plugins.module_utils import hostfs


@pytest.fixture(name='fs')
def _fs(tmp_path):
    return hostfs.HostFs(str(tmp_path))


def test_a_file_is_read_and_a_missing_one_is_none_without_a_problem(fs, tmp_path):
    (tmp_path / 'sys').mkdir()
    (tmp_path / 'sys' / 'a').write_bytes(b'0-3\n')
    assert fs.read('sys/a') == '0-3\n'
    assert fs.read('sys/b') is None
    assert fs.read('sys/a/b') is None
    assert fs.problems == []


def test_bytes_that_are_no_text_are_decoded_with_replacement(fs, tmp_path):
    (tmp_path / 'a').write_bytes(b'\xff\0x')
    assert fs.read('a') == '\ufffd\0x'


@pytest.mark.parametrize('size', [0, 4095, 4096, 4097, 200000])
def test_files_of_any_size_up_to_the_limit_are_read_whole(fs, tmp_path, size):
    (tmp_path / 'a').write_bytes(b'x' * size)
    assert len(fs.read('a')) == size
    assert len(fs.head('a', 1000)) == min(size, 1000)


def test_a_file_of_procfs_that_comes_in_portions_is_read_whole():
    assert hostfs.HostFs('/').read('proc/self/maps').count('\n') > 20


def test_a_file_above_the_limit_is_a_problem(fs, tmp_path):
    (tmp_path / 'a').write_bytes(b'x' * 11)
    assert fs.read('a', limit=10) is None
    assert 'larger than 10 bytes' in fs.problems[0]


def make_directory(path):
    path.mkdir()


def make_fifo(path):
    os.mkfifo(path)


def make_loop(path):
    path.symlink_to(path.name)


def make_way_out(path):
    path.symlink_to('/etc/hostname')


def make_device(path):
    path.symlink_to('/dev/zero')


@pytest.mark.parametrize('make, reason', [(make_directory, 'not a regular file'), (make_fifo, 'not a regular file'), (make_loop, 'loop|symbolic'),
                                          (make_way_out, 'leads out of the recorded tree'), (make_device, 'leads out of the recorded tree')])
def test_what_is_no_regular_file_is_a_problem_and_blocks_nobody(fs, tmp_path, make, reason):
    make(tmp_path / 'a')
    assert fs.read('a') is None
    assert len(fs.problems) == 1
    assert str(tmp_path / 'a') in fs.problems[0]
    assert any(word in fs.problems[0] for word in reason.split('|')), fs.problems


def test_a_link_that_stays_inside_is_followed_and_a_dangling_one_is_missing(fs, tmp_path):
    (tmp_path / 'real').write_text('x')
    (tmp_path / 'link').symlink_to('real')
    (tmp_path / 'dangling').symlink_to('nothing')
    assert fs.read('link') == 'x'
    assert fs.read('dangling') is None
    assert fs.problems == []


def test_an_error_of_the_device_is_a_problem(fs, tmp_path, monkeypatch):
    (tmp_path / 'a').write_text('x')

    def broken(descriptor, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(hostfs.os, 'read', broken)
        assert fs.read('a') is None
    assert fs.problems == ['%s cannot be read: Input/output error.' % (tmp_path / 'a')]


def test_a_path_with_a_nul_byte_is_a_problem(fs):
    assert fs.read('a\0b') is None
    assert 'null' in fs.problems[0]


def test_many_problems_are_told_briefly(fs, tmp_path):
    for number in range(2 * hostfs.MAX_PROBLEMS):
        (tmp_path / str(number)).mkdir()
        assert fs.read(str(number)) is None
    assert len(fs.problems) == hostfs.MAX_PROBLEMS + 1
    assert 'only the first' in fs.problems[-1]


def test_names_are_sorted_and_a_missing_directory_has_none(fs, tmp_path):
    (tmp_path / 'b').write_text('')
    (tmp_path / 'a').write_text('')
    assert fs.names('') == ['a', 'b']
    assert fs.names('nothing') == []
    assert fs.names('a') == []
    assert fs.problems == []


def test_a_file_is_written_whole_with_its_directories_and_mode(fs, tmp_path):
    fs.write('var/lib/x/map.json', 'text', mode=0o600)
    path = tmp_path / 'var/lib/x/map.json'
    assert path.read_text() == 'text'
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ['map.json']


def test_a_write_that_fails_leaves_the_old_file_alone(fs, tmp_path, monkeypatch):
    (tmp_path / 'a').write_text('old')

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(hostfs.os, 'fsync', full)
    with pytest.raises(OSError, match='No space left'):
        fs.write('a', 'new')
    assert (tmp_path / 'a').read_text() == 'old'
    assert os.listdir(tmp_path) == ['a']


def test_the_sysroot_of_the_host_is_told_from_a_recorded_one(fs):
    assert hostfs.HostFs('/').is_host and hostfs.HostFs().is_host and not fs.is_host
    assert hostfs.HostFs('/').path('proc/cpuinfo') == '/proc/cpuinfo'
    assert pathlib.Path(fs.path('proc')).parent == pathlib.Path(fs.sysroot)
