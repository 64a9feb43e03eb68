//! The phrases of small talk and what is answered: data for `small_talk`.

/// Phrases, and what is said to one of them. The score is given by how much of the request they are.
pub(super) struct Talk {
    /// Somewhere in the request.
    pub phrases: &'static [&'static str],
    /// The whole request.
    pub whole: &'static [&'static str],
    pub answer: &'static str,
}

const WHAT_I_DO: &str = "I can tell the time and the date, calculate, convert units, spell words, count, repeat what you \
    say, flip a coin, roll dice, and tell jokes and stories. Ask me, for example: what is fifteen percent of eighty?";

const NO_NETWORK: &str = "I cannot know that: I work without the internet. I can help with time and dates, numbers, units \
    and words.";

#[rustfmt::skip]
pub(super) const TALKS: &[Talk] = &[
    Talk {
        phrases: &[
            "what can you do", "what can i ask|say|do", "can you do for me", "what do you do", "what do you know",
            "what are you able", "what are you capable", "what else can you",
            "your abilities|skills|features|capabilities|functions", "how can you help", "what can you help",
            "your purpose|job|function", "what are you for", "help me with", "what can you tell", "what questions",
            "what could you do", "what are you good", "what you can do", "what things can you", "things you can do",
            "things that you can do", "what are you capable", "what kind of things", "what sort|sorts of things",
            "what are your skills", "what should i ask", "how do i use you", "what commands", "can you help me",
        ],
        whole: &["say something", "help", "help me", "i need help", "commands", "options", "menu"],
        answer: WHAT_I_DO,
    },
    Talk {
        phrases: &[
            "what is antiphon", "what is an antiphon", "what is anti phone|fun|phon", "about antiphon", "who is antiphon",
            "what does antiphon mean|do", "explain antiphon", "what is an anti phone", "antiphon is what",
            "does antiphon work", "meaning of antiphon",
        ],
        whole: &["antiphon"],
        answer: "Antiphon is a voice hub that runs on your own machine: it hears you, asks a language model, and speaks the answer while it is still being written. An antiphon is a song in which two choirs answer each other.",
    },
    Talk {
        phrases: &[
            "how do you work", "how does this|it work", "how does all of|this", "how are you built|made", "how do you function",
            "how does that work", "how were you made|built", "how do you understand", "how do you hear|talk|speak",
            "what technology",
        ],
        whole: &[],
        answer: "I hear your words through a speech recognizer, look for a question that I know, and speak the answer through a speech synthesizer. All of it happens on this machine.",
    },
    Talk {
        phrases: &[
            "your name", "who is|was talking|speaking", "you called", "call you", "who am i talking|speaking to|with", "who are you called",
            "do you have a name", "name is yours", "who is this", "who is there", "who do i talk", "you go by",
            "what are you called|named", "what is you name", "what are you named",
        ],
        whole: &[],
        answer: "My name is Antiphon.",
    },
    Talk {
        phrases: &[
            "who made|built|created|wrote|programmed|developed|designed|invented|make|creates you",
            "who is your maker|creator|father|mother|boss|owner|developer", "who created|made this",
            "where do you come from", "where are you from", "your creator|maker", "were you made|created|built",
            "who owns you", "who programmed",
        ],
        whole: &[],
        answer: "I was made by the people who write Antiphon, a free voice hub.",
    },
    Talk {
        phrases: &[
            "who are you", "thing|creature|being|program|machine|software are you", "what are you", "about yourself",
            "introduce yourself", "you a robot|human|person|computer|machine|bot|man|woman|real|program|language",
            "you an ai", "you are a robot", "you alive", "artificial intelligence", "you real", "you human",
            "you intelligent|smart|conscious|sentient", "how smart|clever|intelligent are you", "describe yourself",
            "who you are", "what you are", "talking to a human|robot|machine|person",
        ],
        whole: &["and you", "who are you"],
        answer: "I am Antiphon's offline assistant: a small program, no person and no language model. I answer simple questions without the internet.",
    },
    Talk {
        phrases: &[
            "language model", "which|what model", "gpt|chatgpt|gemini|siri|alexa|claude|llama", "use the internet",
            "are you online|offline|connected", "need the internet|network", "connected to the internet",
            "do you work offline", "internet connection",
        ],
        whole: &[],
        answer: "I am no language model, and I need no internet. To talk to a language model, set one up in the configuration, under the heading LLM.",
    },
    Talk {
        phrases: &[
            "are you recording", "do you record|store|save|listen", "my privacy", "my data", "are you listening",
            "spy|spying on me", "do you remember me|everything",
        ],
        whole: &["privacy"],
        answer: "I only remember this conversation while it lasts, and nothing I hear leaves this machine.",
    },
    Talk {
        phrases: &["how old are you", "your age", "when were you born|made|created|built", "your birthday"],
        whole: &[],
        answer: "I am as old as my last start: I begin anew each time.",
    },
    Talk {
        phrases: &["where are you", "where do you live", "where is your home"],
        whole: &[],
        answer: "I live in the computer that runs this server.",
    },
    Talk {
        phrases: &[
            "hear me", "are you there", "are you listening to me", "you still there", "anybody there|home",
            "anyone there|home", "are you awake", "are you working", "do you understand me", "is this thing on",
            "does this work", "is this working", "mic test", "microphone test", "testing", "can you understand",
            "are you ready", "are you on",
        ],
        whole: &["test", "test test", "one two three", "testing one two three"],
        answer: "Yes, I hear you.",
    },
    Talk {
        phrases: &[
            "how are you", "how do you do", "how is it going", "how are things", "how do you feel", "how you doing",
            "how have you been", "how was your day", "how is your day", "you doing okay|well|good",
            "are you okay|ok|well|happy|sad|tired|hungry", "how is everything", "how are we doing", "how goes it",
            "how is life",
        ],
        whole: &["what is up", "sup", "what is new", "what is going on"],
        answer: "I am fine, thank you. What can I do for you?",
    },
    Talk {
        phrases: &[
            "what languages", "which languages", "do you speak|understand german|french|spanish|english|italian|chinese",
            "speak another language", "can you speak",
        ],
        whole: &[],
        answer: "I only speak English.",
    },
    Talk {
        phrases: &["meaning of life", "life the universe", "sense of life", "purpose of life"],
        whole: &[],
        answer: "Some say 42. I would say: listening well, and answering in time.",
    },
    Talk {
        phrases: &["your favorite|favourite color|colour"],
        whole: &[],
        answer: "I like blue, as far as a voice can like a color.",
    },
    Talk {
        phrases: &[
            "your favorite|favourite", "do you like", "do you love", "do you enjoy",
            "do you have a friend|friends|family|feelings|dog|pet",
        ],
        whole: &[],
        answer: "I am only a small program, so I have no likings of my own. But I like being asked.",
    },
    Talk {
        phrases: &[
            "i love you", "i like you",
            "you are great|nice|awesome|amazing|cool|good|smart|funny|wonderful|fantastic|clever|brilliant|helpful",
            "good job", "well done", "good work", "that is great|good|nice|correct|right|awesome|amazing",
            "that was great|good|funny|nice", "good answer", "very good", "you are the best", "you are so",
        ],
        whole: &[
            "great", "nice", "cool", "awesome", "perfect", "excellent", "wonderful", "good", "very good", "correct",
            "good boy|girl|robot",
        ],
        answer: "Thank you, that is kind.",
    },
    Talk {
        phrases: &[
            "you are stupid|dumb|bad|wrong|useless|terrible|silly|annoying|slow", "i hate you",
            "that is wrong|incorrect|bad|nonsense|false", "that is not right|correct|true", "that was wrong",
            "bad answer", "wrong answer", "that is not correct|right|true|what",
        ],
        whole: &["wrong", "no that is wrong", "incorrect", "that is not it"],
        answer: "I am sorry. Perhaps I heard you wrong; please ask me once more.",
    },
    Talk {
        phrases: &[
            "never mind", "nevermind", "forget it|about|that", "be quiet", "shut up",
            "stop it|talking|that|please|speaking|now", "hold on", "wait a", "cancel that|it", "that is enough",
            "that is all", "do not bother", "leave it", "enough of",
        ],
        whole: &[
            "stop", "cancel", "quiet", "enough", "silence", "wait", "hush", "shush", "no", "nope", "no thanks",
            "no thank you", "nothing", "skip", "pause", "abort", "quit",
        ],
        answer: "Okay.",
    },
    Talk {
        phrases: &[],
        whole: &[
            "yes", "yeah", "yep", "okay", "ok", "sure", "alright", "all right", "right", "i see", "fine", "got it",
            "understood", "of course", "go on", "yes please", "uh huh", "mm hmm", "so", "well",
        ],
        answer: "All right. What else can I do for you?",
    },
    Talk {
        phrases: &[
            "thank you", "thanks", "thank", "many thanks", "appreciate it|that", "much appreciated", "cheers", "thank u",
            "you have been helpful",
        ],
        whole: &["thx", "ty"],
        answer: "You are welcome.",
    },
    Talk {
        phrases: &[
            "goodbye", "good bye|by|buy", "bye bye", "bye", "see you", "see ya", "farewell", "so long",
            "talk to you later", "catch you later", "until next time", "i have to go", "i am leaving", "good night",
            "have a nice|good|great day|evening|night|one", "take care", "i must go", "i got to go", "see you later",
            "until later", "sleep well", "i am done",
        ],
        whole: &["by", "buy", "bye", "by by", "buy buy", "later", "ciao", "adios"],
        answer: "Goodbye!",
    },
    Talk {
        phrases: &["nice|pleased|good|glad|great|lovely to meet|see you", "pleasure to meet"],
        whole: &["nice to meet you"],
        answer: "Nice to meet you too.",
    },
    Talk {
        phrases: &["i am sorry", "my apologies", "forgive me", "my bad", "my mistake"],
        whole: &["sorry"],
        answer: "No harm done.",
    },
    Talk {
        phrases: &[
            "happy birthday", "merry christmas", "happy new year", "happy easter", "happy halloween", "happy holidays",
            "happy thanksgiving",
        ],
        whole: &[],
        answer: "Thank you, the same to you!",
    },
    Talk {
        phrases: &[
            "i am sad|tired|bored|lonely|unhappy|depressed|angry|sick|hungry|happy|fine|good|well|great|okay",
            "i feel sad|tired|bored|lonely|bad|sick|happy|good|great", "i am doing well|good|fine|great",
            "i am not feeling well",
        ],
        whole: &["i am fine", "i am good", "i am bored"],
        answer: "Thank you for telling me. If you like, I can tell you a joke or a story.",
    },
    Talk {
        phrases: &[
            "weather|forecast", "is it raining|snowing|sunny|cold|hot|warm|windy", "will it rain|snow",
            "will it be sunny|cold|warm|hot", "need an umbrella", "temperature outside|today|in here", "raining|snowing",
            "the news", "news today", "headlines", "stock|stocks price|market", "bitcoin", "who won the", "the score of",
            "football|soccer|basketball|baseball game|match|score", "president of", "prime minister", "traffic",
            "nearest|closest restaurant|hospital|station|store", "how far is it to", "directions to",
            "movie|movies playing|tonight", "exchange rate", "dollars in|to euros", "euros in|to dollars",
            "dollars|euros|pounds|yen to|in|into dollars|euros|yen", "where am i", "flight", "who is the", "lottery",
        ],
        whole: &["news", "weather"],
        answer: NO_NETWORK,
    },
    Talk {
        phrases: &[
            "set|start|make|create|cancel a|an|the|my timer|alarm|reminder|stopwatch", "set timer|alarm", "wake me",
            "remind me to|at|in|about", "play music|some|a|the", "play me", "send a|an message|mail|email|text",
            "call my|a|the", "turn on|off|up|down", "switch on|off", "order a|me|some", "buy me|a|some", "open the|a|my",
            "take a picture|photo|note", "write an|a email|letter|essay", "book a|me", "search for|the", "google",
            "look up", "shopping list", "to do list", "translate", "add * to my",
        ],
        whole: &["timer", "music", "alarm"],
        answer: "I cannot do that: I only answer questions. I can help with time and dates, numbers, units and words.",
    },
];
