// The workbench of the inspector: the events of a connection with a filter, one event in full, and an editor that sends any
// event. Whose connection it is, a page of its own or the voice chat, it does not know.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { bytes, duration } from '../../dashboard/data/words';
import { LANGUAGES, LANGUAGE_WORDS, TEMPLATES, codeOf, draftFrom } from '../data/code';
import { type Filter, GROUPS, type Group, type ToolCall, firstFilter, matching, toolCalls } from '../data/filter';
import type { Direction, Entry, EventLog } from '../data/log';
import { withoutHidden } from '../data/redact';
import { EventList, time } from './EventList';
import { Json } from './Json';
import '../workbench.css';

interface Props {
  log: EventLog;
  /** Address of the server, for code that connects to it. */
  url: string;
  isOpen: boolean;
  /** False: nothing was sent. */
  onSend: (event: object) => boolean;
}

interface Draft {
  text: string;
  /** Fields that are to be filled in: they held a secret or audio, which the log does not have. */
  hidden: readonly string[];
}

const draftOf = (event: object): Draft => ({ text: JSON.stringify(event, null, 2), hidden: [] });

export function Workbench({ log, url, isOpen, onSend }: Props) {
  const entries = useEntries(log);
  const [filter, setFilter] = useState<Filter>(firstFilter);
  const [frozen, setFrozen] = useState<readonly Entry[] | null>(null);
  const [chosen, setChosen] = useState<number | null>(null);
  const [draft, setDraft] = useState<Draft>(() => draftOf(TEMPLATES[1] ?? {}));
  const seen = frozen ?? entries;
  const listed = useMemo(() => matching(seen, filter), [seen, filter]);
  const entry = seen.find(({ n }) => n === chosen) ?? null;
  return (
    <div class="workbench">
      <section class="card events" aria-label="Events">
        <Tools
          filter={filter}
          onFilter={setFilter}
          isPaused={frozen !== null}
          waiting={frozen === null ? 0 : (entries.at(-1)?.n ?? 0) - (frozen.at(-1)?.n ?? 0)}
          onPause={() => setFrozen(frozen === null ? entries : null)}
          onClear={() => {
            log.clear();
            setFrozen(null);
            setChosen(null);
          }}
        />
        {/* No live region: it changes with every message. */}
        <p class="quiet" id="count">
          {listed.length} of {seen.length} events{log.dropped > 0 && `, ${log.dropped} older ones are gone`}
        </p>
        <EventList entries={listed} chosen={chosen} isFollowing={frozen === null} onChoose={setChosen} />
      </section>
      <div class="side">
        <Detail
          entry={entry}
          url={url}
          onEdit={(event) => {
            const { event: open, hidden } = withoutHidden(event);
            setDraft({ text: JSON.stringify(open, null, 2), hidden });
          }}
        />
        <Editor draft={draft} isOpen={isOpen} onDraft={setDraft} onSend={onSend} />
        <Calls
          calls={useMemo(() => toolCalls(seen), [seen])}
          onChoose={setChosen}
          onAnswer={(id) => setDraft(draftOf({ type: 'conversation.item.create', item: { type: 'function_call_output', call_id: id, output: '{}' } }))}
        />
      </div>
    </div>
  );
}

const GROUP_WORDS: Record<Group, string> = { all: 'All kinds', session: 'Session', conversation: 'Conversation', response: 'Response', audio: 'Audio', tools: 'Tools', errors: 'Errors' };

interface ToolsProps {
  filter: Filter;
  onFilter: (filter: Filter) => void;
  isPaused: boolean;
  /** Events that came since. */
  waiting: number;
  onPause: () => void;
  onClear: () => void;
}

function Tools({ filter, onFilter, isPaused, waiting, onPause, onClear }: ToolsProps) {
  const set = (change: Partial<Filter>) => onFilter({ ...filter, ...change });
  return (
    <div class="tools">
      <input class="tools-words" id="words" type="search" aria-label="Search the events" placeholder="Search" value={filter.words} onInput={(event) => set({ words: event.currentTarget.value })} />
      <select id="direction" aria-label="Direction" value={filter.direction} onChange={(event) => set({ direction: event.currentTarget.value as Direction | 'all' })}>
        <option value="all">Both ways</option>
        <option value="sent">Sent</option>
        <option value="received">Received</option>
      </select>
      <select id="group" aria-label="Kind" value={filter.group} onChange={(event) => set({ group: event.currentTarget.value as Group })}>
        {GROUPS.map((group) => (
          <option key={group} value={group}>
            {GROUP_WORDS[group]}
          </option>
        ))}
      </select>
      <label class="toggle">
        <input type="checkbox" id="audio" checked={filter.showsAudio} onChange={(event) => set({ showsAudio: event.currentTarget.checked })} />
        <span>Audio</span>
      </label>
      <button type="button" class={`pill ${isPaused ? 'active' : ''}`} id="pause" onClick={onPause}>
        {isPaused ? `Go on (${waiting} new)` : 'Pause'}
      </button>
      <button type="button" class="pill" id="clear" onClick={onClear}>
        Clear
      </button>
    </div>
  );
}

function Detail({ entry, url, onEdit }: { entry: Entry | null; url: string; onEdit: (event: unknown) => void }) {
  const [copied, setCopied] = useState('');
  if (entry === null) {
    return (
      <section class="card" id="detail" aria-label="Event">
        <p class="quiet">Choose an event to see all of it.</p>
      </section>
    );
  }
  const event: unknown = JSON.parse(entry.json);
  const copy = async (name: string, text: string) => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(`${name} is copied.`);
    } catch {
      setCopied('The browser does not let this page copy.');
    }
  };
  return (
    <section class="card" id="detail" aria-label="Event">
      <h2>{entry.type}</h2>
      <p class="quiet">
        {entry.direction === 'note' ? 'connection' : entry.direction} at {time(entry.at)}, {bytes(entry.bytes)}
        {entry.audioMs !== null && `, ${duration(entry.audioMs)} of audio`}
      </p>
      {entry.direction !== 'note' && (
        <div class="detail-tools">
          <button type="button" class="pill" onClick={() => void copy('JSON', JSON.stringify(event, null, 2))}>
            Copy JSON
          </button>
          {entry.direction === 'sent' && typeof event === 'object' && (
            <>
              <button type="button" class="pill" id="edit" onClick={() => onEdit(event)}>
                Edit
              </button>
              {LANGUAGES.map((language) => {
                const code = codeOf(language, url, [event as object]);
                return (
                  <button
                    key={language}
                    type="button"
                    class="pill"
                    id={`copy-${language}`}
                    disabled={code === null}
                    title={code === null ? 'curl speaks HTTP: it can send a session.update only' : `Copy as ${LANGUAGE_WORDS[language]}`}
                    onClick={() => code !== null && void copy(LANGUAGE_WORDS[language], code)}
                  >
                    {LANGUAGE_WORDS[language]}
                  </button>
                );
              })}
            </>
          )}
        </div>
      )}
      <p class="quiet" role="status" id="copied">
        {copied}
      </p>
      <Json key={entry.n} value={event} />
    </section>
  );
}

function Editor({ draft, isOpen, onDraft, onSend }: { draft: Draft; isOpen: boolean; onDraft: (draft: Draft) => void; onSend: (event: object) => boolean }) {
  const [isStuck, setStuck] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const checked = draftFrom(draft.text);
  const send = () => {
    if (checked.kind === 'fit' && isOpen) setStuck(!onSend(checked.event));
  };
  return (
    <section class="card editor" aria-label="Send an event">
      <div class="card-head">
        <h2>Send</h2>
        <select
          id="template"
          aria-label="Begin with an event"
          value=""
          onChange={(event) => {
            const template = TEMPLATES[Number(event.currentTarget.value)];
            event.currentTarget.value = '';
            if (template) onDraft(draftOf(template));
            box.current?.focus();
          }}
        >
          <option value="">Begin with …</option>
          {TEMPLATES.map((template, i) => (
            <option key={i} value={i}>
              {templateName(template)}
            </option>
          ))}
        </select>
      </div>
      <textarea
        id="draft"
        ref={box}
        aria-label="Event, as JSON"
        aria-describedby="draft-state"
        spellcheck={false}
        rows={9}
        value={draft.text}
        onInput={(event) => onDraft({ ...draft, text: event.currentTarget.value })}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send();
        }}
      />
      <div class="editor-foot">
        <span id="draft-state" class={checked.kind === 'unfit' ? 'unfit' : 'quiet'}>
          {checked.kind === 'unfit' ? checked.why : isStuck ? 'Not sent: the connection is stuck.' : draft.hidden.length > 0 ? `To be filled in: ${draft.hidden.join(', ')}.` : isOpen ? 'Ctrl+Enter sends' : 'There is no connection.'}
        </span>
        <button type="button" class="pill primary" id="send-event" disabled={checked.kind === 'unfit' || !isOpen} onClick={send}>
          Send
        </button>
      </div>
    </section>
  );
}

function templateName(template: object): string {
  const { type, item, response } = template as { type: string; item?: { type: string }; response?: object };
  return [type, item?.type === 'message' ? 'text' : item?.type, response ? 'text only' : undefined].filter((part) => part !== undefined).join(', ');
}

function Calls({ calls, onChoose, onAnswer }: { calls: readonly ToolCall[]; onChoose: (n: number) => void; onAnswer: (id: string) => void }) {
  if (calls.length === 0) return null;
  return (
    <section class="card" id="calls" aria-label="Tool calls">
      <h2>Tool calls</h2>
      <ul class="calls">
        {calls.map((call) => (
          <li key={call.id}>
            <button type="button" class="link" onClick={() => onChoose(call.n)}>
              {call.name === '' ? call.id : call.name}
            </button>
            <code>{call.args}</code>
            {call.output === null ? (
              <button type="button" class="link" onClick={() => onAnswer(call.id)}>
                answer it
              </button>
            ) : (
              <span>
                <code>{call.output}</code> <span class="quiet">after {duration((call.answeredAt ?? call.askedAt) - call.askedAt)}</span>
              </span>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Draws at most once per animation frame, however many events arrive. */
function useEntries(log: EventLog): readonly Entry[] {
  const [entries, setEntries] = useState(log.entries);
  useEffect(() => {
    let frame = 0;
    const draw = () => {
      frame = 0;
      setEntries(log.entries);
    };
    const stop = log.subscribe(() => {
      frame ||= requestAnimationFrame(draw);
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [log]);
  return entries;
}
